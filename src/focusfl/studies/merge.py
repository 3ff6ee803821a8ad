"""Folders of one study, which differ in their seeds alone, as one."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from focusfl.core import files
from focusfl.core.validation import shown
from focusfl.studies import store
from focusfl.studies.store import MANIFEST, RUNS, Folder, Run, Study, alone, identity, name_of
from focusfl.studies.tables import IDENTITY

# Settings that runs do not follow from, with their seeds.
BESIDE = ("name", "seed", "seeds", "client_state", "devices", "checkpoint_every")
ROUNDING = 1e-4  # of a curve's largest value: runs side by side round in another order
FEW = 4  # differences that a message names


def settings(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a study one by one, in the words that --set takes."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def pool(studies: Sequence[Study]) -> Study:
    """Put folders of one study together, as if all seeds had been run in the first.

    Args:
        studies: as `Study.load` reads each. A run that several folders
            have counts once.

    Raises:
        ValueError: If there are none, if they are of different studies, or if a run is
            in two of them with different curves.
    """
    if not studies:
        raise ValueError("pooling needs at least one folder of a study; got none.")
    first, runs_by_identity = studies[0], dict[tuple, tuple[Run, Study]]()
    if len(studies) == 1:
        return first
    for study in studies:
        _check_same_study(first, study)
        for run in study.runs:
            earlier = runs_by_identity.setdefault(identity(run.row), (run, study))
            _check_same_run(*earlier, run, study)
    runs = [run for run, _ in runs_by_identity.values()]
    seeds = list(dict.fromkeys(run.row["seed"] for run in runs))
    groups = list(dict.fromkeys(map(_group, runs)))
    runs.sort(key=lambda run: (groups.index(_group(run)), seeds.index(run.row["seed"])))
    abouts = [study.manifest for study in studies]
    names = list(dict.fromkeys(about["name"] for about in abouts))
    as_run = {k: v for k, v in first.manifest["study"].items() if k != "seed"}
    about = first.manifest | {
        "name": names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        "study": as_run | {"seeds": seeds},
        "started": min(about["started"] for about in abouts),
        "finished": max(about["finished"] for about in abouts),
        "seconds": round(sum(about["seconds"] for about in abouts), 3),
        "compile_seconds": round(sum(about["compile_seconds"] for about in abouts), 3),
        "merged": [str(study.folder) for study in studies],
    }
    return Study(first.folder, about, runs, first.participants)


def by_study(studies: Sequence[Study]) -> list[list[Study]]:
    """Put those together that can be pooled."""
    groups: list[list[Study]] = []
    for study in studies:
        for group in groups:
            try:
                pool([*group, study])
            except ValueError:
                continue
            group.append(study)
            break
        else:
            groups.append([study])
    return groups


def merge(folders: Sequence[Path], out: Path) -> Study:
    """Write folders of one study as one; what the folder `out` has stays in it.

    Args:
        folders: of the studies.
        out: a new folder, an empty one, or one of the same study, whose runs are kept.

    Raises:
        ValueError: As of `pool`, or if `out` holds something else. Nothing is written.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise ValueError(f"{out} is not empty and holds no study; name a new folder with --out.")
    there = [Study.load(out)] if (out / MANIFEST).is_file() else []
    studies = [*there, *map(Study.load, folders)]
    pooled = pool(studies)
    about = {k: v for k, v in pooled.manifest.items() if k not in ("format", "files", "seal")}
    if len({study.manifest["name"] for study in studies}) > 1:
        about["name"] = out.resolve().name
    with alone(out):
        here = Folder(out, there[0].manifest if there else None)
        for study in reversed(studies):  # of doubles, the first counts
            source = Folder(study.folder, study.manifest)
            for run in study.runs:
                if name := run.row.get("model"):
                    files.write(out / name, source.read(name))
                    here.add(name)
        keys = [str(run.row.get("key") or run.row) for run in pooled.runs]
        group = f"{RUNS}/{name_of(keys)}"
        for old in [name for name in here.files if name.startswith(f"{RUNS}/")]:
            if not old.startswith(group):  # its runs are in the new one
                here.remove(old)
        here.write_runs(group, pooled.runs)
        store.save(here, about, pooled.runs, pooled.participants, [group])
    return Study.load(out)


def _group(run: Run) -> tuple:
    return tuple(run.row[k] for k in ("participation", "algorithm", "local_steps"))


def _facts(study: Study) -> dict[str, Any]:
    """What the runs of a study follow from, beside their seeds."""
    about = study.manifest
    return {
        **{k: v for k, v in settings(about["study"]) if k not in BESIDE},
        **{f"sha256 of {k}": part["sha256"] for k, part in about.get("parts", {}).items()},
        **{f"problem's {k}": about["problem"].get(k) for k in ("num_clients", "size")},
        "version of focusfl": about["environment"].get("focusfl"),
    }


def _check_same_study(a: Study, b: Study) -> None:
    """Raise unless two folders differ in their seeds alone."""

    def words(facts: Mapping[str, Any], name: str) -> str:
        value = facts.get(name, "nothing")
        return value if isinstance(value, str) else shown(value)

    first, second = _facts(a), _facts(b)
    differ = [
        f"{name}: {words(first, name)} and {words(second, name)}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]
    if differ:
        more = f"; and {len(differ) - FEW} more" if len(differ) > FEW else ""
        raise ValueError(
            f"{a.folder} and {b.folder} are not one study, which may differ in seeds "
            f"alone. They differ in {'; '.join(differ[:FEW])}{more}."
        )


def _check_same_run(run: Run, a: Study, other: Run, b: Study) -> None:
    """Raise unless a run is the same, to rounding, in two folders."""
    names = [n for n in {**run.curves, **other.curves} if n != "seconds"]
    differ = [n for n in names if not _same(run.curves.get(n), other.curves.get(n))]
    if differ:
        name = ", ".join(f"{key} {run.row[key]}" for key in IDENTITY)
        raise ValueError(
            f"{a.folder} and {b.folder} both have the run {name}, with other values of "
            f"{', '.join(differ)}. Leave one of the folders out."
        )


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    room = ROUNDING * np.max(np.abs(a), initial=0, where=np.isfinite(a))
    return bool(np.allclose(a, b, rtol=0, atol=room, equal_nan=True))
