"""Every parser of bytes: seeds, the corpus and random changes of both keep its law."""

import random

import numpy as np
import pytest

from fuzz import laws
from fuzz.targets import COLUMNS, REAL, TARGETS, Broken, Target

CHANGES = 150  # of a target's inputs; python tests/fuzz tries as many as there is time for


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_give_a_value_or_a_documented_error_in_little_time(name):
    target = TARGETS[name]
    seeds = [*target.seeds()]
    # Without a limit, as this imports what is imported late.
    assert any([laws.attempt(target, content) for content in seeds]), "no sound input"
    seeds += laws.corpus_of(name).values()
    for content in seeds:
        laws.attempt(target, content, laws.SECONDS)
    for number in range(CHANGES):
        first = random.Random(f"{name} {number}").choice(seeds)
        content = laws.mutate(first, seeds, target.words, number)
        try:
            laws.attempt(target, content, laws.SECONDS)
        except Exception as error:
            error.add_note(f"input: {content[:2000]!r}")
            raise


def test_a_parser_that_raises_another_error_or_hangs_breaks_the_law():
    def hang(content):
        while True:
            pass

    assert laws.attempt(Target(len, list), b"") and not laws.attempt(Target(int, list), b"x")
    with pytest.raises(KeyError):
        laws.attempt(Target({}.__getitem__, list), b"x")
    with pytest.raises(Broken, match="more than 0.1 s"):
        laws.attempt(Target(hang, list), b"x", 0.1)


@pytest.mark.parametrize("column, sound, damaged", [("weight", 1.0, 2.0), ("norm", 0.5, -1.0)])
def test_a_number_of_a_database_that_cannot_be_is_refused(column, sound, damaged):
    where = bytes([COLUMNS.index(("sites", column)), REAL])
    for number, readable in ((sound, True), (damaged, False)):
        assert laws.attempt(TARGETS["row"], where + np.float64(number).tobytes()) == readable


def test_the_corpus_is_small_and_of_targets_that_there_are():
    files = [file for file in laws.CORPUS.rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} <= set(TARGETS)
    assert sum(file.stat().st_size for file in files) < 300_000
