import numpy as np
import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report import bands
from focusfl.studies.report.columns import COLUMNS, sci, short
from focusfl.studies.report.groups import bests, group_looks, grouped, study_names


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path):
    groups = grouped(make_study(tmp_path))
    assert [(one.scenario, one.label, len(one.runs)) for one in groups] == [
        (scenario, name, 3)
        for scenario in ("full", "rare")
        for name in ("FOCUS", "FedAvg", "SCAFFOLD")
    ]


def test_a_label_names_the_step_size_only_where_there_are_several(tmp_path):
    runs = [make_run("a", "focus", s, lr=lr) for lr in (0.1, 1e9) for s in (0, 1)]
    runs += [make_run("a", "mifa", 0, steps=k) for k in (1, 5)]
    runs += [make_run("a", "fedavg", 0), make_run("b", "fedavg", 0, lr=0.2)]
    groups = grouped(save(tmp_path, runs))
    assert [one.label for one in groups] == [
        "FOCUS (lr 0.1)", "FOCUS (lr 1e9)", "MIFA (1 step)", "MIFA (5 steps)",
        "FedAvg", "FedAvg",
    ]  # fmt: skip
    looks = group_looks(groups)
    first, second = looks["FOCUS (lr 0.1)"], looks["FOCUS (lr 1e9)"]
    assert first["color"] == second["color"] != looks["FedAvg"]["color"]
    assert first["linestyle"] != second["linestyle"]


def test_step_sizes_that_were_chosen_are_one_group_whatever_was_chosen(tmp_path):
    runs = [make_run("a", "focus", s, lr=0.1 + s, why_lr="auto") for s in (0, 1)]
    (one,) = grouped(save(tmp_path, runs))
    assert one.lr is None and one.quartiles("lr").mid == pytest.approx(0.6)


GRID = {"focus": (0.9, 0.5, 0.7), "mifa": (0.6, 0.7, 0.8)}  # rates at each step


def grid(scenario="a", better=0):
    """Three steps of two algorithms, those of FOCUS best in the middle, or later."""
    return [
        make_run(scenario, name, seed, lr=0.1 * (k + 1), rate=rates[(k - better) % 3])
        for name, rates in GRID.items()
        for k in range(3)
        for seed in range(2)
    ]


def test_the_best_step_gets_to_the_target_first(tmp_path):
    best = bests(grouped(save(tmp_path, grid())))
    assert [(one.name, one.lr, one.short) for one in best] == [
        ("FOCUS", 0.2, "FOCUS (lr 0.2)"), ("MIFA", 0.1, "MIFA (lr 0.1)"),
    ]  # fmt: skip


def test_where_the_best_step_differs_between_scenes_the_label_says_so(tmp_path):
    groups = grouped(save(tmp_path, grid("a") + grid("b", better=1)))
    assert {one.short for one in groups} == {
        "FOCUS, best of 3 lr",
        "MIFA, best of 3 lr",
    }
    steps = {(one.scenario, one.name): short(one.lr) for one in bests(groups)}
    assert steps == {
        ("a", "FOCUS"): "0.2", ("a", "MIFA"): "0.1",
        ("b", "FOCUS"): "0.3", ("b", "MIFA"): "0.2",
    }  # fmt: skip


@pytest.mark.parametrize(
    "hows, wanted",
    [
        (({"bias": 0.1}, {"bias": 0.01}), 0.2),  # nobody gets there: who is closest
        (({"rate": 0.5}, {"diverged_at": 40}), 0.1),
        (({"accuracy": True, "distance": False, "rounds": 60},
          {"accuracy": True, "distance": False, "rounds": 20}), 0.1),
    ],
    ids=["closest", "not diverged", "most accurate"],
)  # fmt: skip
def test_without_a_target_the_best_step_is_that_of_the_end(tmp_path, hows, wanted):
    runs = [make_run("a", "focus", 0, lr=0.1 * (k + 1), **how)
            for k, how in enumerate(hows)]  # fmt: skip
    (best,) = bests(grouped(save(tmp_path, runs)))
    assert best.lr == wanted


def test_scenes_with_steps_of_their_own_are_no_grid(tmp_path):
    runs = [make_run("a", "focus", 0, lr=0.1), make_run("b", "focus", 0, lr=0.2)]
    groups = grouped(save(tmp_path, runs))
    assert [(one.short, one.best) for one in groups] == [("FOCUS", True)] * 2


def test_the_loss_above_the_optimum_is_known_where_the_optimum_is(tmp_path):
    (one,) = grouped(save(tmp_path / "a", [make_run("a", "x", 0)], optimal_loss=100.0))
    loss, gap = (one.runs[0].curves[name] for name in ("loss", "suboptimality"))
    assert np.array_equal(gap, np.maximum(loss - 100, np.spacing(100.0)))
    assert gap.min() == np.spacing(100.0)  # nothing is below the last digit
    (one,) = grouped(save(tmp_path / "b", [make_run("a", "x", 0)]))
    assert "suboptimality" not in one.runs[0].curves


def test_rounds_that_were_not_evaluated_are_not_counted():
    """Every tenth round, and the last: drawn where they are, not where they stand."""
    whole = [make_run("a", "x", s, rounds=63, rate=0.9) for s in range(3)]
    some = [make_run("a", "x", s, rounds=63, rate=0.9, every=10) for s in range(3)]
    found = bands.band(some, "distance")
    rounds = [0, 10, 20, 30, 40, 50, 60, 63]
    assert found.axes["round"].tolist() == rounds
    every_round = bands.band(whole, "distance")
    assert np.array_equal(found.mid, every_round.mid[rounds])
    axis = every_round.axes["vectors_sent"]
    assert np.array_equal(found.axes["vectors_sent"], axis[rounds])


def test_the_vectors_to_the_target_are_those_of_its_round():
    run = make_run("a", "x", 0, every=5, rounds_to_target=40)
    whole = make_run("a", "x", 0)
    sent = COLUMNS["vectors_to_target"].number_of(run)
    assert sent == whole.curves["vectors_sent"][40]


def test_seeds_that_stopped_at_other_rounds_are_put_together_round_by_round():
    runs = [make_run("a", "x", s, rounds=r, every=10, bias=0.1 + s)
            for s, r in enumerate((23, 40, 40))]  # fmt: skip
    found = bands.band(runs, "distance")
    assert found.axes["round"].tolist() == [0, 10, 20, 30, 40]  # of all three
    assert found.low[-1] < runs[1].curves["distance"][-1] <= found.mid[-1]


def test_studies_of_one_name_are_called_by_their_folders(tmp_path):
    found = [make_study(tmp_path / name) for name in ("a", "b")]
    assert study_names(found[:1]) == ["made"]
    assert study_names(found) == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_verdicts_say_where_and_how_many(tmp_path):
    runs = [make_run("a", "focus", seed) for seed in range(2)]
    runs += [make_run("a", "focus", 2, diverged_at=7)]
    runs += [make_run("a", "fedavg", 0, bias=0.02)]
    one, biased = grouped(save(tmp_path, runs))
    assert one.verdict() == "exact 2 of 3, diverged 1 of 3"
    assert biased.verdict() == "biased at 2.1e-2"


def test_what_was_never_reached_is_infinite_and_spoils_only_its_own_quartile(
    tmp_path,
):
    runs = [make_run("a", "focus", s, bias=0.1 if s == 4 else 0) for s in range(5)]
    (one,) = grouped(save(tmp_path, runs))
    low, mid, high = one.quartiles("rounds_to_target")
    assert low <= mid <= high < np.inf
    assert COLUMNS["rounds_to_target"].write(np.inf) == "never"
    assert one.numbers("rounds_to_target")[4] == np.inf


def test_a_curve_goes_on_until_half_of_its_runs_have_diverged():
    runs = [make_run("a", "x", s, diverged_at=d) for s, d in enumerate([None, 30, 40])]
    found = bands.band(runs, "distance")
    assert len(found.mid) == 41  # two of three are gone from then on
    assert np.isfinite(found.mid).all() and len(found.axes["seconds"]) == 41


def test_a_run_that_stopped_early_keeps_its_last_value():
    short_run, long_run = make_run("a", "x", 0, rounds=10), make_run("a", "x", 0)
    found = bands.band([short_run, short_run, long_run], "distance")
    assert len(found.mid) == 61
    assert found.mid[-1] == short_run.curves["distance"][-1]


def test_quartiles_are_of_runs_evaluated_in_the_same_round():
    """One that ended off the others' grid counts from their next evaluation on."""
    runs = [make_run("a", "x", seed, rounds=60) for seed in range(3)]
    for run, last in zip(runs, (60, 60, 37), strict=True):
        due = [*range(0, last, 10), last]
        for name in run.curves:
            run.curves[name] = run.curves[name][due]
    found = bands.band(runs, "distance")
    assert found.axes["round"].tolist() == [0, 10, 20, 30, 40, 50, 60]
    ends = [run.curves["distance"][-1] for run in runs]
    assert found.mid[-1] == np.median(ends)


def test_thinning_keeps_the_ends_and_every_spike():
    run = make_run("a", "x", 0, rounds=20_000, rate=0.999)
    curve = run.curves["distance"]
    curve[[777, 15_123]] = 1e3, 1e-14
    whole = bands.band([run], "distance")
    thin = bands.thinned(whole, 600)
    assert len(thin.mid) <= 600
    assert thin.axes["round"][[0, -1]].tolist() == [0, 20_000]
    assert {1e3, 1e-14} <= set(thin.mid)
    assert (np.diff(thin.axes["round"]) > 0).all()


def test_relative_to_the_best_divides_subtracts_or_counts_from_the_lowest():
    runs = [[make_run("a", n, 0, rate=r, accuracy=True)] for n, r in (("x", 0.6), ("y", 0.8))]
    for metric, lowest, highest in [("distance", 1, np.inf), ("accuracy", -1, 0)]:
        pair = bands.relative([bands.band(own, metric) for own in runs], metric, "round")
        together = np.concatenate([one.mid for one in pair])
        assert together.min() >= lowest and together.max() <= highest
    fast, slow = bands.relative([bands.band(own, "distance") for own in runs], "distance", "round")
    assert np.all(fast.mid[1:20] == 1)
    assert np.isclose(slow.mid[10], (0.8 / 0.6) ** 10)
    losses = bands.relative([bands.band(own, "loss") for own in runs], "loss", "round")
    assert min(one.low.min() for one in losses) == 0


def test_numbers_are_written_short():
    assert [sci(1.44e-15), sci(2.0e-2, 0), short(1e9), short(2e-4)] == [
        "1.4e-15", "2e-2", "1e9", "0.0002",
    ]  # fmt: skip
