"""What algorithms are called and what they look like: in every figure the same."""

from collections.abc import Iterable, Mapping
from typing import Any

from focusfl.algorithms import ALGORITHMS

PUBLISHED = "_as_published"
BESIDE = ("kind", "algorithms")  # keys of a section that are said in other words
# Okabe and Ito's colours, told apart by colour-blind readers, then three more.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
    "#6A3D9A", "#8C564B", "#7F7F7F",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = ("-", (0, (5, 2)), (0, (3, 1, 1, 1)))  # a second and third turn of colours


def label(name: str) -> str:
    """The name as people write it; what a study calls its own stays as it is."""
    base = name.removesuffix(PUBLISHED)
    if base not in ALGORITHMS:
        return name
    return ALGORITHMS.label(base) + " (as published)" * (base != name)


def conditions(study: Mapping[str, Any]) -> list[str]:
    """What a study says of all its messages: their compressor, privacy and secure sums."""
    phrases = []
    for section, word in (
        ("compression", ""),
        ("privacy", "private"),
        ("secure", "secure"),
    ):
        table = study.get(section)
        if isinstance(table, Mapping):
            settings = [f"{k} {v}" for k, v in table.items() if k not in BESIDE]
            words = filter(None, (word, str(table.get("kind", "")), *settings))
            whose = table.get("algorithms")
            phrases.append(" ".join(words) + (f" for {', '.join(whose)}" if whose else ""))
    return phrases


def colour(name: str) -> str:
    """The colour that an algorithm has registered; from the eleventh on it is dashed."""
    style = ALGORITHMS.style(name)
    assert style is not None, f"{name} has no colour for itself"
    return COLOURS[style % len(COLOURS)]


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, line and width by name; the first is drawn thickest.

    An algorithm that has registered a style keeps it, and as published it is dotted. Others take
    the styles that are left, from the end.
    """
    names = list(names)
    places = _places(names)
    return {
        name: {
            "color": COLOURS[places[name] % len(COLOURS)],
            "linestyle": ":" if name.endswith(PUBLISHED)
            else STYLES[places[name] // len(COLOURS) % len(STYLES)],
            "linewidth": 2.0 if name == names[0] else 1.4,
        }
        for name in names
    }  # fmt: skip


def markers(names: Iterable[str]) -> dict[str, str]:
    """A marker by name, as `looks` gives a colour."""
    places = _places(names)
    return {name: MARKERS[place % len(MARKERS)] for name, place in places.items()}


def _places(names: Iterable[str]) -> Mapping[str, int]:
    """Where each name stands in COLOURS, counted on from its end if it is full."""
    bases = {name: name.removesuffix(PUBLISHED) for name in names}
    styles = {base: ALGORITHMS.style(base) for base in bases.values()}
    taken = {base: style for base, style in styles.items() if style is not None}
    left = [place for place in range(len(COLOURS)) if place not in taken.values()]
    for base in bases.values():
        if base not in taken:  # from the end: the first colours mean FOCUS and FedAvg
            beyond = 1 + max([*taken.values(), len(COLOURS) - 1])
            taken[base] = left.pop() if left else beyond
    return {name: taken[base] for name, base in bases.items()}
