"""A few marks for pictures written by hand, and where pictures go."""

from pathlib import Path

from focusfl.core.files import renamed

PICTURES = Path(__file__).parent.parent / "pictures"
BLUE, ORANGE, GREEN, INK, PALE, LINE = (
    "#0072B2", "#D55E00", "#009E73", "#222", "#667", "#c8ccd2",
)  # fmt: skip
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


def text(x, y, words, size=16, colour=INK, anchor="start", weight="normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>'
    )


def box(x, y, width, height, fill="#fff", stroke=LINE, wide=1.5, dash="") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{wide}"{dashed}/>'
    )


def arrow(x1, y1, x2, y2, colour=BLUE, wide=3) -> str:
    """A line with a head at its end; heads are made where they are used."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bx, by = x2 - 12 * ux, y2 - 12 * uy
    head = f"{x2:.1f},{y2:.1f} {bx - 6 * uy:.1f},{by + 6 * ux:.1f} "
    head += f"{bx + 6 * uy:.1f},{by - 6 * ux:.1f}"
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{bx:.1f}" y2="{by:.1f}" '
        f'stroke="{colour}" stroke-width="{wide}"/><polygon points="{head}" '
        f'fill="{colour}"/>'
    )


def cells(masks, left, top, width, height, colour=BLUE) -> str:
    """A path that fills the true cells of a (rows, columns) matrix, run by run."""
    path = []
    for row, line in enumerate(masks):
        start = None
        for column, on in enumerate([*line, False]):
            if on and start is None:
                start = column
            elif not on and start is not None:
                wide = (column - start) * width
                x, y = left + start * width, top + row * height
                path.append(f"M{x:g} {y:g}h{wide:g}v{height * 0.86:.3g}h{-wide:g}z")
                start = None
    return f'<path fill="{colour}" d="{"".join(path)}"/>'


def write(name: str, title: str, width: int, height: int, parts: list[str]) -> None:
    """Put marks on a white card and write it to pictures/NAME.svg."""
    card = f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>'
    body = "\n".join([f"<title>{title}</title>", card, *parts])
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="{FONT}">'
    )
    with renamed(PICTURES / f"{name}.svg") as part:
        part.write_text(f"{opening}\n{body}\n</svg>\n")
