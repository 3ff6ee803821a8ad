"""Figures of matplotlib, which may not be installed, and as files."""

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focusfl.core.extras import missing
from focusfl.core.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING = 1e4  # what has blown up is cut off so many times above where it began


class NoMatplotlib(ValueError):
    """Nothing can be drawn here; everything else can be shown."""


def blank(**options: Any) -> "Figure":
    """An empty figure; where matplotlib is missing, one clear line."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        words = missing("figures need", "matplotlib", "plots")
        raise NoMatplotlib(words) from None
    return Figure(**options)


def render(figure: "Figure", kind: str) -> bytes:
    """Turn a figure into the bytes of a PNG, SVG or PDF."""
    from matplotlib import rc_context

    out = io.BytesIO()
    # No date and fixed ids: the same results give the same file. Text stays text, and
    # a PDF holds its letters as TrueType, which journals ask for.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "focusfl", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(out, format=kind, dpi=160, metadata=dates.get(kind, {}))
    return out.getvalue()


def saved(folder: Path, figures: Mapping[str, Callable[[], "Figure"]]) -> list[Path]:
    """Draw figures into a folder, by name; without matplotlib, say so and draw none."""
    try:
        drawn = {name: render(draw(), "png") for name, draw in figures.items()}
    except NoMatplotlib as error:
        print(f"no {' and no '.join(figures)}.png: {error}", file=sys.stderr)
        return []
    return [write(folder / f"{name}.png", picture) for name, picture in drawn.items()]
