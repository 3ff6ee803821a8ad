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

    @property
    def nodes(self) -> range:
        """What the rows and columns of the matrix are called."""
        return range(self.first, self.first + len(self.matrix))


def mixing_figure(num_clients: int, active: Iterable[SupportsIndex]) -> "Figure":
    """Draw one round as graphs, over the matrices that they stand for.

    Args:
        num_clients: how many clients there are, at most 16.
        active: the participants, numbered from 1.

    Raises:
        ValueError: If there are too many clients, or a participant is none of them.
    """
    if not 1 <= num_clients <= MOST:
        raise ValueError(
            f"num_clients must lie between 1 and {MOST}, or the matrices could not be "
            f"read; got {num_clients}."
        )
    present = sorted(int(i) for i in active)
    if len({*present}) != len(present) or any(not 1 <= i <= num_clients for i in present):
        raise ValueError(
            f"active must be distinct clients from 1 to {num_clients}; got {present}. "
            "The server is 0."
        )
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
        look = {"color": step.colour, "va": "baseline"}
        _text(panel, 0.0, HEAD, step.when, 9.0, **look)
        _text(panel, 0.0, HEAD + 0.24, step.title, 12.0, **look, weight="bold")
        for line, words in enumerate(step.note.split("\n")):
            below = HEAD + 0.46 + 0.155 * line
            _text(panel, 0.0, below, words, 8.5, color=DIM, va="baseline")
        _draw_graph(panel, step, present, across - 0.7)
        _draw_matrix(panel, step)
    names = "{" + ", ".join(map(str, present)) + "}" if present else "∅"
    title = f"One round with S = {names} out of N = {num_clients} clients"
    figure.text(0.5, 1 - 0.32 / height, title, ha="center", va="center", fontsize=13)
    return figure


def _steps(num_clients: int, present: list[int]) -> list[Step]:
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


def _draw_graph(panel: "Axes", step: Step, present: list[int], width: float) -> None:
    """Draw nodes, and an arrow from j to i for every entry [i, j] that is not 0."""
    from matplotlib.patches import Circle, FancyArrowPatch

    def arrow(start: Any, end: Any, colour: str, **more: Any) -> None:
        panel.add_patch(FancyArrowPatch(start, end, color=colour, **more))

    clients = [i for i in step.nodes if i > 0]
    reach = min(width, 0.62 * (len(clients) - 1)) / 2
    places = zip(clients, np.linspace(-reach, reach, len(clients)).tolist(), strict=True)
    at = {0: (0.0, SERVER)} | {i: (x, CLIENTS) for i, x in places}
    for i in step.nodes:
        speaks = i == 0 or i in present
        fill = INK if i == 0 else step.colour if speaks else FAINT
        edge = fill if speaks else DIM
        panel.add_patch(Circle(at[i], RADIUS, facecolor=fill, edgecolor=edge, zorder=3))
        ink = "white" if speaks else DIM
        x, y = at[i]
        _text(panel, x, y, str(i), 9.0, color=ink, weight="bold", zorder=4)
    gap = 72 * RADIUS + 1  # from the middle of a node to the tip of an arrow, in points
    between = {"shrinkA": gap, "shrinkB": gap, "mutation_scale": 9, "linewidth": 1.1}
    for row, column in np.argwhere(step.matrix):
        i, j = step.nodes[row], step.nodes[column]
        if i == j:
            side = -1 if i == 0 else 1  # the server's above, clients' below
            x, y = at[i][0], at[i][1] + side * 0.9 * RADIUS
            arrow(
                (x - side * LOOP, y), (x + side * LOOP, y),
                step.colour if i in present else DIM, arrowstyle="-|>", mutation_scale=6,
                connectionstyle="arc3,rad=2", shrinkA=0, shrinkB=0, linewidth=0.9,
            )  # fmt: skip
        elif not step.matrix[column, row]:
            arrow(at[j], at[i], step.colour, arrowstyle="-|>", **between)
        elif i < j:  # both ways: one arrow with two heads
            bend = "arc3,rad=-0.55"
            arrow(
                at[i], at[j], step.colour, arrowstyle="<|-|>", connectionstyle=bend, **between
            )  # fmt: skip


def _draw_matrix(panel: "Axes", step: Step) -> None:
    from matplotlib.patches import Rectangle

    side = CELL * len(step.matrix)
    left, top = -side / 2, MATRIX + CELL * step.first  # row i is as high in all panels
    for k, name in enumerate(step.nodes):
        _text(panel, left + CELL * (k + 0.5), top - 0.13, str(name), 7.0, color=DIM)
        _text(panel, left - 0.17, top + CELL * (k + 0.5), str(name), 7.0, color=DIM)
    for (i, j), value in np.ndenumerate(step.matrix):
        x, y = left + CELL * j, top + CELL * i
        if value:
            tint = {"color": FAINT} if i == j else {"color": step.colour, "alpha": 0.25}
            panel.add_patch(Rectangle((x, y), CELL, CELL, linewidth=0, **tint))
        number = Fraction(value).limit_denominator(1000)
        words, size = str(number), 9.0
        if number.denominator > 1:
            words, size = rf"$\frac{{{number.numerator}}}{{{number.denominator}}}$", 11.5
        _text(panel, x + CELL / 2, y + CELL / 2, words, size, color=INK if value else PALE)
    end = top + side
    for x, tick in ((left - 0.05, 0.06), (left + side + 0.05, -0.06)):
        bracket = ([x + tick, x, x, x + tick], [top, top, end, end])
        panel.plot(*bracket, color=INK, linewidth=1.1, solid_joinstyle="miter")
    _text(panel, 0.0, end + 0.32, step.symbol, 11.0, color=INK, va="baseline")
    _text(panel, 0.0, end + 0.55, step.stochastic, 8.5, color=DIM, va="baseline")


def _text(panel: "Axes", x: float, y: float, words: str, size: float, **look: Any) -> None:
    panel.text(x, y, words, fontsize=size, **({"ha": "center", "va": "center"} | look))
