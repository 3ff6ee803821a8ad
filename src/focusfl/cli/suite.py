"""`focusfl suite`: federated methods, each at its own best step, cell by cell."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl.cli.options import Option, command, folder, words
from focusfl.core.validation import check_count, check_positive

if TYPE_CHECKING:
    from focusfl.suite.board import Board
    from focusfl.suite.store import Row


ALONE = Option(
    "--alone", action="store_true", help="compare with nothing but what is in the folder"
)


@command(
    "suite run", "run what is missing of the suite; show how methods compare",
    "focusfl suite run --algorithms my_module:MyAlgorithm --workers 2",
    Option("--cells", type=words, default=[], metavar="A,B",
           help="tuning, reporting, all, or names of cells, problems, laws (reporting)"),
    Option("--algorithms", type=words, default=[], metavar="A,B",
           help="names of entrants, or your own: module:Class, with module.py here (all)"),
    Option("-o", "--out", type=Path, help="folder for results (runs/suite)"),
    Option("--workers", type=int, default=os.cpu_count() or 1, metavar="N",
           help="processes (as many as cores)"),
    Option("--minutes", type=float, help="stop after so many, to go on another time"),
    Option("--quick", action="store_true", help="three cells alone, in some two minutes"),
    ALONE,
)  # fmt: skip
def _run(options: argparse.Namespace) -> int:
    from focusfl.studies.report import terminal
    from focusfl.suite import cells, entrants
    from focusfl.suite.progress import progress
    from focusfl.suite.run import missing_extras, run

    check_count("--workers", options.workers)
    if options.minutes is not None:
        check_positive("--minutes", options.minutes)
    if options.quick and options.cells:
        raise ValueError("--quick chooses the cells; leave --cells out, or --quick.")
    chosen = cells.chosen(["quick"] if options.quick else options.cells or ["reporting"])
    who = entrants.entered(options.algorithms)
    place = folder(options, "suite")
    if left_out := missing_extras(chosen):
        chosen = [cell for cell in chosen if cell not in left_out]
        terminal.say(f"{len(left_out)} cells need scikit-learn, the extra digits, and are left out")
    try:
        with progress(options.minutes) as began:
            rows = run(chosen, who, place, options.workers, Path.cwd(), began)
    except KeyboardInterrupt:
        terminal.say(f"what was found is in {place}: the same command goes on there")
        raise
    names, methods = {cell.name for cell in chosen}, {entrant.name for entrant in who}
    rows = [row for row in rows if row.cell in names]
    there, wanted = sum(row.entrant in methods for row in rows), len(chosen) * len(who)
    if there < wanted:
        terminal.say(f"{there} of {wanted} results are there: the same command goes on")
    return _print(options, rows, place / "suite.html") if rows else 0


@command(
    "suite show", "show results of the suite, and write a page about them",
    "focusfl suite show runs/suite -o suite.html",
    Option("folders", type=Path, nargs="+", metavar="DIR",
           help="folders of results; of studies, too"),
    Option("-o", "--out", type=Path, help="the page (DIR/suite.html; of several leaderboard.html)"),
    ALONE,
)  # fmt: skip
def _show(options: argparse.Namespace) -> int:
    from focusfl.suite.board import gathered

    board, first = gathered(options.folders), options.folders[0]
    alone = len(options.folders) == 1
    file = options.out or (first / "suite.html" if alone else Path("leaderboard.html"))
    return _print(options, board.rows, file, board)


def _print(
    options: argparse.Namespace,
    rows: Sequence["Row"],
    file: Path,
    board: "Board | None" = None,
) -> int:
    """Print how methods compare, and write the page; of several folders, who sent
    what."""
    from focusfl.core.files import write
    from focusfl.studies.report import terminal
    from focusfl.suite.page import page
    from focusfl.suite.run import compared
    from focusfl.suite.tables import halves, sentence, tables

    everybody = list(rows) if options.alone else compared(rows)
    split = halves(everybody)
    more = [board.sent, board.doubts] if board and len(board.sent.rows) > 1 else []
    write(file, page(everybody, board.studies if board else (), more))
    if options.json:
        answer = {
            "results": [row.as_dict() for row in rows],
            "tables": {
                half: [table._asdict() for table in tables(cells)] for half, cells in split.items()
            },
            "folders": [table._asdict() for table in more],
            "files": [str(file)],
        }
        print(json.dumps(answer, indent=2, allow_nan=False))
        return 0
    for half, cells in split.items():
        for table in tables(cells):
            terminal.print_table(f"{half}: {table.title}", table.heads, table.rows)
        terminal.print_text(sentence(cells))
    for table in more:
        if table.rows:
            terminal.print_table(table.title, table.heads, table.rows)
    print(f"written: {file}")
    return 0


@command("suite list", "list cells and entrants", "focusfl suite list --json")
def _list(options: argparse.Namespace) -> int:
    from focusfl.studies.report import terminal
    from focusfl.suite.cells import CELLS
    from focusfl.suite.entrants import ENTRANTS

    if options.json:
        answer = {
            "cells": {cell.name: cell._asdict() for cell in CELLS},
            "entrants": {name: entrant._asdict() for name, entrant in ENTRANTS.items()},
        }
        print(json.dumps(answer, indent=2))
        return 0
    problems = {cell.problem: cell for cell in CELLS}
    rows = [
        (name, cell.split, cell.measure, str(cell.local_steps),
         ", ".join(each.law for each in CELLS if each.problem == name))
        for name, cell in problems.items()
    ]  # fmt: skip
    heads = ("problem", "half", "measure", "local steps", "participation")
    terminal.print_table(f"{len(CELLS)} cells", heads, rows)
    methods = [
        (entrant.name, entrant.kind, "ours" if entrant.ours else "baseline",
         str(len(entrant.variants)), str(entrant.local_steps or "the cell's"))
        for entrant in ENTRANTS.values()
    ]  # fmt: skip
    heads = ("entrant", "kind", "", "constants", "local steps")
    terminal.print_table("entrants", heads, methods)
    return 0
