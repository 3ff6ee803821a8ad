import json

import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report.compare import compare


def pair(tmp_path, before, after):
    """Two studies of one group, told apart by the options of their runs."""
    return [
        save(tmp_path / name, [make_run("a", "x", seed, **options) for seed in range(5)])
        for name, options in (("before", before), ("after", after))
    ]


def words(found):
    return {change.what: change.word for change in found.changes}


def test_a_study_is_the_same_as_itself(tmp_path):
    found = make_study(tmp_path)
    told = compare(found, found)
    assert {change.word for change in told.changes} == {"same"}
    assert told.settings == {} and told.alone == ([], [])


def test_a_faster_rate_is_better_and_a_slower_one_worse(tmp_path):
    slow, fast = pair(tmp_path, {"rate": 0.6}, {"rate": 0.5})
    assert words(compare(slow, fast)) == {
        "error": "same",  # both are exact: rounding differs and nothing else
        "rounds_to_target": "better", "vectors_to_target": "better",
        "bytes_to_target": "better", "seconds_per_round": "same",
    }  # fmt: skip
    assert words(compare(fast, slow))["rounds_to_target"] == "worse"
    change = compare(slow, fast).changes[1]
    assert change.ratio == change.after.mid / change.before.mid < 1


def test_a_difference_within_the_spread_over_seeds_is_none(tmp_path):
    runs = [
        [make_run("a", "x", seed, bias=0.01 * scale * (1 + seed)) for seed in range(5)]
        for scale in (1.0, 1.1)
    ]
    a, b = (save(tmp_path / str(i), own) for i, own in enumerate(runs))
    assert words(compare(a, b))["error"] == "same"


def test_rounding_is_no_difference_even_where_there_is_no_spread(tmp_path):
    a, b = (
        save(tmp_path / str(bias), [make_run("a", "x", 0, bias=bias)]) for bias in (0.02, 0.0200001)
    )
    assert words(compare(a, b))["error"] == "same"


def test_fewer_rounds_are_no_better_in_seconds(tmp_path):
    whole, half = pair(tmp_path, {"rounds": 60}, {"rounds": 30})
    for found in (whole, half):  # a second takes as many rounds in both
        for run in found.runs:
            run.curves["seconds"] = 0.1 * run.curves["round"]
    ends = [found.runs[0].curves["seconds"][-1] for found in (whole, half)]
    assert ends == [6.0, 3.0]
    assert words(compare(whole, half))["seconds_per_round"] == "same"
    for run in half.runs:  # as one study run twice on a busy machine
        run.curves["seconds"] *= 0.75
    assert words(compare(whole, half))["seconds_per_round"] == "same"
    assert words(compare(half, whole))["seconds_per_round"] == "same"
    for run in half.runs:
        run.curves["seconds"] *= 0.5
    assert words(compare(whole, half))["seconds_per_round"] == "better"


def test_more_accuracy_is_better_and_divergence_is_worst(tmp_path):
    low, high = pair(tmp_path, {"accuracy": True, "rounds": 10}, {"accuracy": True, "rounds": 60})
    assert words(compare(low, high))["accuracy"] == "better"
    fine, gone = pair(tmp_path, {"bias": 0.5}, {"diverged_at": 20})
    change = compare(fine, gone).changes[0]
    assert change.word == "worse" and change.ratio is None


def test_what_only_one_study_has_is_named_and_so_are_settings(tmp_path):
    both = [make_run("a", "focus", 0)]
    a = save(tmp_path / "a", [*both, make_run("a", "mifa", 0)], study={"rounds": 9})
    b = save(tmp_path / "b", both, study={"rounds": 8, "problem": {"kind": "x"}})
    told = compare(a, b)
    assert told.alone == (["a · MIFA"], [])
    assert told.settings == {"rounds": (9, 8), "problem.kind": (None, "x")}


def test_studies_with_nothing_in_common_are_refused(tmp_path):
    a, b = pair(tmp_path, {"lr": 0.1}, {"lr": 0.2})
    with pytest.raises(ValueError, match="have no run in common"):
        compare(a, b)
    a, b = pair(tmp_path, {}, {"distance": False})  # another measure of the error
    with pytest.raises(ValueError, match="have no run in common"):
        compare(a, b)


def test_the_command_shows_what_moved_and_counts_the_rest(command_line, tmp_path, capsys):
    pair(tmp_path, {"rate": 0.6}, {"rate": 0.5})
    words = ("compare", tmp_path / "before", tmp_path / "after")
    assert command_line(*words) == 0
    out = capsys.readouterr().out
    assert "better" in out and "2 of 5 numbers are the same within the spread" in out
    assert "seconds" not in out
    command_line(*words, "--all")
    assert "seconds" in capsys.readouterr().out
    command_line(*words, "--json")
    told = json.loads(capsys.readouterr().out)
    assert [change["word"] for change in told["changes"]] == [
        "same", "better", "better", "better", "same",
    ]  # fmt: skip
