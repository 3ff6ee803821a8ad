"""The convergence figure: what diverged in the public code, and steps found for each."""

import convergence


def test_what_was_published_only_looked_divergent():
    who = ["focus", "scaffnew", "scaffnew_as_published"]
    study = convergence.load("ridge-public-code", only=who)
    verdicts = {
        (one.row["algorithm"], one.row["participation"]): one.row["verdict"]
        for one in convergence.run(study)
    }
    for scenario in ("full", "uniform", "weighted"):
        assert verdicts["focus", scenario] == verdicts["scaffnew", scenario] == "exact"
        wrong = "exact" if scenario == "full" else "diverged"
        assert verdicts["scaffnew_as_published", scenario] == wrong


def test_a_step_of_its_own_is_no_slower_than_the_studys():
    study = convergence.load("ridge-public-code", only=["focus", "scaffnew_as_published"])
    plain = {one.row["participation"]: one.row for one in convergence.run(study)
             if one.row["algorithm"] == "focus"}  # fmt: skip
    best = [one.row for one in convergence.tuned(study)]
    assert [row["algorithm"] for row in best] == ["focus"] * 3  # published ones are not tuned
    for row in best:
        assert row["rounds_to_target"] <= plain[row["participation"]]["rounds_to_target"]
