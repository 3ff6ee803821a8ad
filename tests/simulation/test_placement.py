"""What is said when a run does not fit."""

import jax
import pytest
from helpers import quadratic

import focusfl as ff
from focusfl.simulation import devices as placement
from focusfl.simulation import scan as program

FULL = ff.participation.Full()


def test_too_many_clients_are_refused_before_anything_runs(monkeypatch):
    problem = quadratic()
    needs = placement.size(problem.data)
    monkeypatch.setattr(placement, "available", lambda: needs // 2)
    monkeypatch.setattr(program, "scan_rounds", None)
    with pytest.raises(ValueError, match=r"do not fit.* About 2 clients would fit"):
        ff.simulate(ff.Focus(), problem, FULL, rounds=3, lr=0.01)


def test_a_device_that_runs_out_says_what_needs_less(monkeypatch):
    def out_of_memory(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(program, "scan_rounds", out_of_memory)
    with pytest.raises(ValueError, match="6 participants side by side are too much"):
        ff.simulate(ff.Focus(), quadratic(), FULL, rounds=3, lr=0.01)


def test_other_errors_of_the_device_pass(monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: broken")

    monkeypatch.setattr(program, "scan_rounds", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="broken"):
        ff.simulate(ff.Focus(), quadratic(), FULL, rounds=3, lr=0.01)


def test_there_is_memory():
    assert placement.available() > 2**30
