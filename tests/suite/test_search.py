"""One rule for everybody: a grid without an edge, and what counts as having arrived."""

import numpy as np
import pytest

from focusfl.core.result import Result
from focusfl.suite.measure import AT_ONCE, Search, Trial, arrived, best_of, search, step_of


def landscape(best: float, breaks: float = np.inf):
    """Rounds that grow by the distance to the best step; past some step it breaks."""
    asked = []

    def run(ks):
        asked.append(ks)
        return {
            k: Trial(np.inf, np.inf) if k > breaks else Trial(100 * 2 ** abs((k - best) / 2), 1e-10)
            for k in ks
        }

    return run, asked


@pytest.mark.parametrize("best", [-41, -15, -14, -7, 0, 1, 13])
def test_the_best_step_is_found_wherever_it_is_and_has_neighbours(best):
    run, asked = landscape(best)
    found = search(run)
    assert found.best == best and not found.edge
    assert {best - 1, best + 1} & {*found.tried}
    assert all(len(ks) == AT_ONCE for ks in asked)  # one compiled program for all


def test_a_search_that_would_go_on_for_ever_ends_and_says_so():
    run, asked = landscape(500)
    found = search(run, batches=3)
    assert found.edge and found.best == max(found.tried) and len(asked) == 3


def test_half_octaves_are_tried_only_where_a_step_has_arrived():
    def never(ks):
        return {k: Trial(np.inf, 0.1 + abs(k + 6)) for k in ks}

    found = search(never)
    assert found.best == -6 and len(found.tried) == AT_ONCE and found.near == 0


def test_steps_that_all_break_lead_to_smaller_ones():
    found = search(landscape(-20, breaks=-17)[0])
    assert found.best == -20


def test_of_equal_steps_the_larger_is_the_best():
    assert best_of({k: Trial(7.0, 1e-10) for k in (-4, -2, 0)}) == 0
    assert best_of({k: Trial(np.inf, np.inf) for k in (-4, -2, 0)}) == -4


def test_steps_near_the_best_are_counted_on_the_fine_grid():
    tried = {k: Trial(100 * 2 ** (abs(k) / 2), 0.0) for k in range(-4, 5)}
    assert Search(0, tried).near == 5  # -2, -1, 0, 1 and 2
    assert step_of(-1) == pytest.approx(0.5**0.5)


def run_of(*errors, diverged_at=None, **more):
    curves = {"distance": np.array(errors), **more}
    return Result(None, curves, None, diverged_at, 1.0, None, None, None)


def test_rounds_count_to_where_the_error_stays_below_the_target():
    assert arrived(run_of(1, 1e-9, 1e-7, 1e-9, 1e-11)) == 3  # it had risen again
    assert arrived(run_of(1, 1e-4, 1e-9)) == np.inf  # not followed far enough
    assert arrived(run_of(1, 1e-9, 1e-11, diverged_at=3)) == np.inf


def test_a_run_that_is_flung_to_where_the_loss_is_level_has_not_arrived():
    for end, rounds in [(0.5, 1), (2.0, np.inf)]:
        loss = np.array([1.0, end, end])
        assert arrived(run_of(1, 1e-9, 1e-11, loss=loss)) == rounds
