"""Show a finished study: page and figures as files, a table in the terminal."""

from pathlib import Path

from focusfl.core.files import write
from focusfl.studies import store
from focusfl.studies.report import figure, html, plots, terminal
from focusfl.studies.report.columns import as_table, pushes_differ
from focusfl.studies.report.finding import condition, findings
from focusfl.studies.report.groups import bests, grouped
from focusfl.studies.report.names import conditions
from focusfl.studies.store import Study


def save_report(study: Study) -> list[Path]:
    """Write the page and, where matplotlib is, the figures; give every file there is."""
    folder = study.folder
    figures = {"figure": lambda: plots.plot([study])}
    if pushes_differ(study.runs):
        figures["figure-bytes"] = lambda: plots.plot([study], "bytes-up")
    return [
        folder / store.MANIFEST,
        write(folder / "index.html", html.page([study])),
        *figure.saved(folder, figures),
    ]


def print_report(study: Study) -> None:
    """Print the best step of every algorithm, why it ended so, and who is fastest."""
    everything = grouped(study)
    groups = bests(everything)
    problem, seeds = study.manifest["problem"], len({run.row["seed"] for run in study.runs})
    more = conditions(study.manifest["study"])
    more += [f"medians over {seeds} seeds"] if seeds > 1 else []
    title = ", ".join([problem["kind"], f"{problem['num_clients']} clients", *more])
    titles, rows = as_table(groups, place="terminal")
    last = titles.index("verdict")
    for row in (titles, *rows):
        row.append(row.pop(last))
    terminal.print_table(title, titles, rows)
    for group in groups:
        if group.verdict() != "exact":
            terminal.print_text(f"{group.scenario} · {group.label}: {group.reason()}.")
    for scenario, sentence in findings(everything):
        terminal.print_text(f"{scenario}: {sentence}")
    terminal.print_text(condition(everything))
    if len(everything) > len(groups):
        terminal.print_text(
            f"All {len(everything)} rows: {study.folder / 'index.html'}, or focusfl "
            f"export {study.folder} -o table.csv --what table"
        )
