"""The picture of a round."""

import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch

from focusfl import mixing
from focusfl.studies.report.figure import render
from focusfl.studies.report.graph import MOST, mixing_figure

SCENARIOS = [(4, [1, 3]), (10, [2, 3, 5, 8, 9]), (1, [1]), (3, [])]


@pytest.mark.parametrize("num_clients, active", [(4, [1, 3]), (3, [])], ids=str)
def test_it_renders_the_same_twice(num_clients, active):
    figures = [mixing_figure(num_clients, active) for _ in range(2)]
    assert render(figures[0], "png").startswith(b"\x89PNG")
    assert render(figures[0], "svg") == render(figures[1], "svg")


@pytest.mark.parametrize("num_clients, active", SCENARIOS, ids=str)
def test_there_is_an_arrow_for_each_entry_and_no_other(num_clients, active):
    given = [i - 1 for i in active], num_clients
    matrices = [
        mixing.pull(*given), np.eye(num_clients + 1), mixing.average(*given),
        mixing.collect(*given), mixing.gossip(*given),
    ]  # fmt: skip
    panels = mixing_figure(num_clients, active).axes
    for panel, matrix in zip(panels, matrices, strict=True):
        arrows = sum(isinstance(patch, FancyArrowPatch) for patch in panel.patches)
        both_ways = np.count_nonzero(np.triu(matrix, 1) * np.tril(matrix, -1).T)
        assert arrows == np.count_nonzero(matrix) - both_ways  # those share an arrow


@pytest.mark.parametrize("num_clients, active", [*SCENARIOS, (MOST, range(1, MOST + 1))])
def test_no_text_overlaps_another_or_leaves_the_page(num_clients, active):
    figure = mixing_figure(num_clients, active)
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text for panel in figure.axes for text in panel.texts] + figure.texts
    boxes = [text.get_window_extent(renderer) for text in texts]
    low, high = np.array([b.p0 for b in boxes]), np.array([b.p1 for b in boxes])
    assert (low >= 0).all() and (high <= figure.bbox.max).all()
    overlap = (low[:, None] < high).all(2) & (low < high[:, None]).all(2)
    pairs = [(i, j) for i, j in np.argwhere(overlap) if i < j]
    assert not [(texts[i].get_text(), texts[j].get_text()) for i, j in pairs]


def test_fractions_are_written_as_fractions():
    texts = [text.get_text() for text in mixing_figure(4, [1, 3, 4]).axes[2].texts]
    assert texts.count(r"$\frac{1}{3}$") == 3


@pytest.mark.parametrize(
    "num_clients, active, message",
    [
        (4, [0, 1], r"from 1 to 4; got \[0, 1\]. The server is 0"),
        (4, [5], "from 1 to 4"),
        (4, [2, 2], "distinct"),
        (0, [], "between 1 and 16"),
        (17, [1], "between 1 and 16, or the matrices could not be read; got 17"),
    ],
)
def test_what_cannot_be_drawn_is_refused(num_clients, active, message):
    with pytest.raises(ValueError, match=message):
        mixing_figure(num_clients, active)


def test_without_matplotlib_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[plots\]' in a clone"):
        mixing_figure(4, [1, 3])
