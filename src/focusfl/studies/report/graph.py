"""One round as graphs: who speaks to whom, over the matrices that say so.

After the paper's figure of graphs and matrices. Clients are numbered as there: 1 to N,
server 0. W(S) is the library's: the paper's lets participants meet at the server.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from focusfl import mixing
from focusfl.mixing.matrices import Mixing
from focusfl.studies.report.figure import blank
from focusfl.studies.report.names import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOCUS, FEDAVG, GOSSIP = COLOURS[:3]  # FOCUS and FedAvg as in the convergence curves
INK, DIM, PALE, FAINT = "#333333", "#8A8A8A", "#BBBBBB", "#EEEEEE"
MOST = 16  # clients; more could not be read

# Lengths are inches, heights are below the upper edge: axes have the scale of paper.
RADIUS, LOOP, CELL = 0.145, 0.085, 0.29
HEAD, SERVER, CLIENTS, MATRIX = 0.85, 1.98, 3.4, 4.2

Point = tuple[float, float]


class Step(NamedTuple):
    """What one panel shows."""

    when: str
    title: str
    note: str
    symbol: str
    matrix: Mixing
    stochastic: str
    colour: str
    first: int = 0  # the node of row and column 0; without a server, client 1


def mixing_figure(num_clients: int, active: Iterable[SupportsIndex]) -> "Figure":
    """Draw a round with these participants, numbered from 1: graphs over matrices."""
    present = _participants(active, num_clients)
    steps = _steps(num_clients, present)
    side = CELL * (num_clients + 1)
    across, height = max(2.6, side + 1.0), MATRIX + side + 0.85
    figure = blank(figsize=(across * len(steps), height))
    for k, step in enumerate(steps):
        panel = figure.add_axes((k / len(steps), 0, 1 / len(steps), 1))
        panel.set(xlim=(-across / 2, across / 2), ylim=(height, 0))
        panel.set_axis_off()
        if k:
            edge = ([-across / 2, -across / 2], [HEAD - 0.1, height - 0.2])
            panel.plot(*edge, color=FAINT, linewidth=1.5)
        _draw_head(panel, step)
        _draw_graph(panel, step, present, across - 0.7)
        _draw_matrix(panel, step)
    names = "{" + ", ".join(map(str, sorted(present))) + "}" if present else "∅"
    title = f"One round with S = {names} out of N = {num_clients} clients"
    figure.text(0.5, 1 - 0.32 / height, title, ha="center", va="center", fontsize=13)
    return figure


def _participants(active: Iterable[SupportsIndex], num_clients: int) -> set[int]:
    if not 1 <= num_clients <= MOST:
        raise ValueError(
            f"num_clients must lie between 1 and {MOST}, or the matrices could not be "
            f"read; got {num_clients}."
        )
    ids = sorted(int(i) for i in active)
    if len(set(ids)) != len(ids) or any(not 1 <= i <= num_clients for i in ids):
        raise ValueError(
            f"active must be distinct clients from 1 to {num_clients}; got {ids}. The server is 0."
        )
    return set(ids)


def _steps(num_clients: int, present: set[int]) -> list[Step]:
    S = [i - 1 for i in present], num_clients  # in code, clients count from 0
    rows, columns = "rows sum to 1", "columns sum to 1"
    both = "rows and columns sum to 1"
    return [
        Step(
            "first", "Pull", "participants take the\nserver's model",
            "$R(S)$", mixing.pull(*S), rows, INK,
        ),
        Step(
            r"then, $\tau$ times", "Local update", "participants step;\nnobody speaks",
            "$I$", np.eye(num_clients + 1), both, INK,
        ),
        Step(
            "last, in FedAvg", "Average", "the server takes the mean\nof their models",
            "$A(S)$", mixing.average(*S), rows, FEDAVG,
        ),
        Step(
            "last, in FOCUS", "Collect", "the server adds up what\nthey hand over",
            r"$C(S) = R(S)^\top$", mixing.collect(*S), columns, FOCUS,
        ),
        Step(
            "or, with no server", "Gossip", "participants average\namong themselves",
            "$W(S)$", mixing.gossip(*S), both, GOSSIP, 1,
        ),
    ]  # fmt: skip


def _draw_head(panel: "Axes", step: Step) -> None:
    first, second = step.note.split("\n")
    for below, text, size, colour, weight in [
        (0.0, step.when, 9.0, step.colour, "normal"),
        (0.24, step.title, 12.0, step.colour, "bold"),
        (0.46, first, 8.5, DIM, "normal"),
        (0.615, second, 8.5, DIM, "normal"),
    ]:
        at = (0.0, HEAD + below)
        _text(panel, at, text, size, colour, weight=weight, va="baseline")


def _draw_graph(panel: "Axes", step: Step, present: set[int], width: float) -> None:
    """Nodes, and an arrow from j to i for every entry [i, j] that is not 0."""
    nodes = _nodes(step)
    clients = [i for i in nodes if i > 0]
    reach = min(width, 0.62 * (len(clients) - 1)) / 2
    at = dict(zip(clients, np.linspace(-reach, reach, len(clients)), strict=True))
    place = {0: (0.0, SERVER)} | {i: (float(x), CLIENTS) for i, x in at.items()}
    for i in nodes:
        speaks = i == 0 or i in present
        fill = INK if i == 0 else step.colour if speaks else FAINT
        _draw_node(panel, place[i], str(i), fill, "white" if speaks else DIM)
    for row, column in np.argwhere(step.matrix):
        i, j = nodes[row], nodes[column]
        if i == j:
            _draw_loop(panel, place[i], step.colour if i in present else DIM, up=i == 0)
        elif not step.matrix[column, row]:
            _draw_arrow(panel, place[j], place[i], step.colour, "-|>")
        elif i < j:  # both ways: one arrow with two heads
            _draw_arrow(panel, place[i], place[j], step.colour, "<|-|>", bend=-0.55)


def _draw_node(panel: "Axes", at: Point, name: str, fill: str, ink: str) -> None:
    from matplotlib.patches import Circle

    edge = DIM if fill == FAINT else fill
    panel.add_patch(Circle(at, RADIUS, facecolor=fill, edgecolor=edge, zorder=3))
    _text(panel, at, name, 9.0, ink, weight="bold", zorder=4)


def _draw_arrow(
    panel: "Axes", start: Point, end: Point, colour: str, heads: str, bend: float = 0.0
) -> None:
    from matplotlib.patches import FancyArrowPatch

    gap = 72 * RADIUS + 1  # in points
    arrow = FancyArrowPatch(
        start, end, arrowstyle=heads, connectionstyle=f"arc3,rad={bend}",
        shrinkA=gap, shrinkB=gap, mutation_scale=9, linewidth=1.1, color=colour,
    )  # fmt: skip
    panel.add_patch(arrow)


def _draw_loop(panel: "Axes", at: Point, colour: str, up: bool) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    side = -1 if up else 1
    circle = Path.arc(125, 400)  # degrees; open where it meets the node
    centre = np.add(at, (0, side * (RADIUS + 0.85 * LOOP)))
    around = np.asarray(circle.vertices) * (LOOP, -side * LOOP) + centre
    loop = FancyArrowPatch(
        path=Path(around, circle.codes), arrowstyle="-|>", mutation_scale=6,
        linewidth=0.9, color=colour,
    )  # fmt: skip
    panel.add_patch(loop)


def _draw_matrix(panel: "Axes", step: Step) -> None:
    from matplotlib.patches import Rectangle

    nodes, side = _nodes(step), CELL * len(step.matrix)
    left, top = -side / 2, MATRIX + CELL * step.first  # row i is as high in all panels
    for k, name in enumerate(nodes):
        _text(panel, (left + CELL * (k + 0.5), top - 0.13), str(name), 7.0, DIM)
        _text(panel, (left - 0.17, top + CELL * (k + 0.5)), str(name), 7.0, DIM)
    for (i, j), value in np.ndenumerate(step.matrix):
        x, y = left + CELL * j, top + CELL * i
        if value:
            tint = {"color": FAINT} if i == j else {"color": step.colour, "alpha": 0.25}
            panel.add_patch(Rectangle((x, y), CELL, CELL, linewidth=0, **tint))
        _draw_entry(panel, (x + CELL / 2, y + CELL / 2), value)
    for x, tick in ((left - 0.05, 0.06), (left + side + 0.05, -0.06)):
        bracket = ([x + tick, x, x, x + tick], [top, top, top + side, top + side])
        panel.plot(*bracket, color=INK, linewidth=1.1, solid_joinstyle="miter")
    end = top + side
    _text(panel, (0.0, end + 0.32), step.symbol, 11.0, INK, va="baseline")
    _text(panel, (0.0, end + 0.55), step.stochastic, 8.5, DIM, va="baseline")


def _draw_entry(panel: "Axes", at: Point, value: float) -> None:
    short = Fraction(value).limit_denominator(1000)
    if short.denominator == 1:
        _text(panel, at, str(short), 9.0, INK if value else PALE)
    else:
        stacked = rf"$\frac{{{short.numerator}}}{{{short.denominator}}}$"
        _text(panel, at, stacked, 11.5, INK)


def _nodes(step: Step) -> range:
    """What the rows and columns of the matrix are called."""
    return range(step.first, step.first + len(step.matrix))


def _text(panel: "Axes", at: Point, text: str, size: float, colour: str, **more: Any) -> None:
    look = {"ha": "center", "va": "center"} | more
    panel.text(*at, text, fontsize=size, color=colour, **look)
