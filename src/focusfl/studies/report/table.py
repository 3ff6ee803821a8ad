"""Write a table in Markdown."""

from focusfl.core.validation import printable


def markdown(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Write a table, a line of headers above its rows, in Markdown."""
    lines = [
        " | ".join(printable(cell).replace("|", r"\|") for cell in line)
        for line in [headers, ("---",) * len(headers), *rows]
    ]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
