import re
from pathlib import Path

import pytest

from focusfl.algorithms import ALGORITHMS
from focusfl.studies.report import names
from focusfl.studies.report.names import COLOURS, colour, label, looks

AS_WRITTEN = {
    "focus": "FOCUS", "scaffold": "SCAFFOLD", "scaffnew": "Scaffnew",
    "proxskip": "ProxSkip", "mifa": "MIFA", "fedvarp": "FedVARP", "fedawe": "FedAWE",
    "fedau": "FedAU", "local_sgd": "LocalSGD", "fedavg": "FedAvg",
    "fedavgm": "FedAvgM", "fedadam": "FedAdam", "fedyogi": "FedYogi",
    "fedadagrad": "FedAdagrad", "server_opt": "ServerOpt",
    "client_opt": "ClientOpt", "fedprox": "FedProx",
    "fedbuff": "FedBuff", "fedasync": "FedAsync", "stale": "Stale",
    "tamuna": "TAMUNA",
    "fednova": "FedNova",
    "amplified_scaffold": "Amplified SCAFFOLD",
    "fedadmm": "FedADMM",
    "fedlt": "FedLT",
    "feddyn": "FedDyn",
    "t_focus": "T-FOCUS", "t_scaffold": "T-SCAFFOLD",
    "anchored_focus": "Anchored FOCUS", "compressed": "Compressed",
}  # fmt: skip


def test_algorithms_are_called_as_people_write_them():
    assert {name: label(name) for name in ALGORITHMS.registered} == AS_WRITTEN
    assert label("scaffold_as_published") == "SCAFFOLD (as published)"
    assert [label(own) for own in ("focus-warm", "sg_focus")] == [
        "focus-warm", "sg_focus",
    ]  # fmt: skip


def drawn(found):
    return {(look["color"], look["linestyle"]) for look in found.values()}


def test_every_algorithm_has_a_colour_or_a_line_of_its_own():
    assert len(drawn(looks(ALGORITHMS.registered))) == len(ALGORITHMS.registered)


@pytest.mark.parametrize("others", [[], ["fedavg"], ["mine", "mifa", "yours"]])
def test_a_colour_does_not_depend_on_who_else_is_there(others):
    for name in ALGORITHMS:
        found = looks([*others, name])
        assert found[name]["color"] == colour(name)
        assert len(drawn(found)) == len(found)


def test_as_published_is_dotted_in_the_same_colour():
    found = looks(["focus", "mifa", "mifa_as_published"])
    assert found["mifa_as_published"]["color"] == found["mifa"]["color"]
    assert found["mifa_as_published"]["linestyle"] == ":" != found["mifa"]["linestyle"]


def test_more_names_than_colours_are_told_apart_by_their_lines():
    own = [f"mine{k}" for k in range(3 * len(COLOURS) - len(ALGORITHMS))]
    found = looks([*own, *ALGORITHMS])
    assert len(drawn(found)) == len(found)


def test_colours_are_written_down_in_one_place():
    """Whoever draws an algorithm asks for its colour."""
    package = Path(names.__file__).parent
    for file in package.rglob("*.py"):
        if file.name != "names.py":
            found = re.findall("|".join(COLOURS[:6]), file.read_text(), re.I)
            assert not found, file
