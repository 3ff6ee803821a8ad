"""A finished study for a person: page and figure as files, a table to read."""

from pathlib import Path

from focusfl.core.files import write
from focusfl.studies import results
from focusfl.studies.report import figure, html, plots, terminal
from focusfl.studies.report.finding import condition, findings
from focusfl.studies.report.groups import bests, grouped
from focusfl.studies.report.names import conditions
from focusfl.studies.report.rows import columns, unlike
from focusfl.studies.results import Results

COLUMNS = (  # of a table that fits in 80 columns; the page has them all
    "participation", "algorithm", "verdict", "lr", "local_steps", "error", "accuracy",
    "accuracy/worst", "loss/worst", "rounds_to_target",
)  # fmt: skip


def save_report(found: Results) -> list[Path]:
    """Write the page and, where matplotlib is, the figure; give every file there is."""
    folder = found.folder
    figures = {"figure": lambda: plots.plot([found])}
    if unlike(found.runs):
        figures["figure-bytes"] = lambda: plots.plot([found], "bytes-up")
    return [
        folder / results.CURVES,
        *[file for file in [folder / results.CLIENTS] if file.is_file()],
        folder / results.MANIFEST,
        write(folder / "index.html", html.page([found])),
        *figure.saved(folder, figures),
    ]


def print_report(found: Results) -> None:
    """Print the best step of every algorithm, why it ended so, and who is fastest."""
    everything = grouped(found)
    groups = bests(everything)
    about, seeds = found.manifest["problem"], len({r.row["seed"] for r in found.runs})
    more = conditions(found.manifest["study"])
    more += [f"medians over {seeds} seeds"] if seeds > 1 else []
    title = ", ".join([about["kind"], f"{about['num_clients']} clients", *more])
    table = [column for column in columns(groups) if column.name in COLUMNS]
    table.sort(key=lambda column: column.name == "verdict")
    texts = [[column.text(cell) for cell in column.cells] for column in table]
    rows = list(zip(*texts, strict=True))
    terminal.print_table(title, [column.title for column in table], rows)
    for one in groups:
        if one.verdict() != "exact":
            terminal.print_text(f"{one.scenario} · {one.label}: {one.reason()}.")
    for scenario, sentence in findings(everything):
        terminal.print_text(f"{scenario}: {sentence}")
    terminal.print_text(condition(everything))
    if len(everything) > len(groups):
        terminal.print_text(
            f"All {len(everything)} rows: {found.folder / 'index.html'}, or focusfl "
            f"export {found.folder} -o table.csv --what table"
        )
