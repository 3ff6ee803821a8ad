"""Other packages' own SCAFFOLD, run as it is and judged by `ff.conformance.check`.

    python benchmarks/conformance/run.py                # all of them: an hour or more
    python benchmarks/conformance/run.py --only fluke

Each package gets an environment of its own, made here by venv and pip and removed
afterwards unless --keep. What is on no index is cloned from GitHub, or taken from a
clone with --clone NAME=FOLDER. Results are kept in results.json, and the table of
docs/conformance.md is made of them.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packages import NOT_RUN, PACKAGES, TORCH, Package

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent.parent / "docs" / "conformance.md"
BEGIN, END = "<!-- packages: begin -->", "<!-- packages: end -->"
LIMIT = 900.0  # seconds for a row at one step


def main() -> None:
    options = _options()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    made = set()
    for name in options.only or ([] if options.table else PACKAGES):
        package = PACKAGES[name]
        python = environment(options.cache, package)
        code = source(options, name, package)
        if code:
            os.environ["CONFORMANCE_CODE"] = str(code / package.root)
        say(f"checking {package.title}")
        found = checked(package, python, code)
        results = kept() | {name: found}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        made.add(python.parent.parent)
    write(kept())
    for folder in made if not options.keep else ():
        shutil.rmtree(folder)


def kept() -> dict:
    """What runs have found so far, those before this one too."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PACKAGES, help="of all, these")
    parser.add_argument(
        "--cache", type=Path, default=HERE.parent.parent / "build" / "conformance",
        help="folder for environments and clones",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument(
        "--clone", action="append", default=[], metavar="NAME=FOLDER",
        help="take a package's code from this clone instead of GitHub",
    )  # fmt: skip
    parser.add_argument("--table", action="store_true", help="run nothing; write the table again")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def environment(cache: Path, package: Package) -> Path:
    """Make the environment of a package if it is not there; give its interpreter."""
    folder = cache / package.adapter.partition("_")[0]
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(package.install)
    if not done.exists() or done.read_text() != wanted:
        say(f"installing {', '.join(package.install)} in {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        limits = folder / "constraints.txt"
        limits.write_text(TORCH + "\n")
        pip = [python, "-m", "pip", "install", "--quiet", "--constraint", limits]
        subprocess.run([*pip, *package.install], check=True)
        done.write_text(wanted)
    return python


def source(options: argparse.Namespace, name: str, package: Package) -> Path | None:
    """The folder of a package's code that is on no index, with the commit in COMMIT."""
    if not package.source:
        return None
    folder = options.cache / "code" / name
    if not (folder / "COMMIT").exists():
        clones = dict(word.split("=", 1) for word in options.clone)
        clone = Path(clones.get(name, options.cache / "clones" / name))
        if not clone.exists():
            url = f"https://github.com/{package.source}"
            subprocess.run(["git", "clone", "--quiet", "--bare", url, clone], check=True)

        def git(*words: str) -> bytes:
            ask = ["git", "-C", clone, *words]
            return subprocess.run(ask, check=True, stdout=subprocess.PIPE).stdout

        folder.mkdir(parents=True)
        archive = git("archive", "HEAD", *package.part.split())
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        (folder / "COMMIT").write_bytes(git("rev-parse", "--short=10", "HEAD"))
    return folder


def checked(package: Package, python: Path, code: Path | None) -> dict:
    """Run all rows; give what is kept of them."""
    from focusfl.conformance import ROWS, check

    report = check(
        package.adapter, python=str(python), folder=HERE, limit=LIMIT,
        rows=package.rows.split(",") if package.rows else tuple(ROWS),
        watch=lambda row, done: done % 600 or say(f"  {row}: {done} rounds"),
    )  # fmt: skip
    say(str(report))
    asked = f"import importlib.metadata as m; print(m.version({package.shows!r}))"
    place = "import sysconfig; print(sysconfig.get_path('purelib'))"
    version, folder = (
        subprocess.run([python, "-c", what], check=True, capture_output=True, text=True)
        .stdout.strip() for what in (asked, place)
    )  # fmt: skip
    if code:
        version = f"{package.source} {(code / 'COMMIT').read_text().strip()}"
    theirs = code / package.root if code else Path(folder)
    lines = [line_of(theirs, *line) for line in package.lines]
    return {"title": package.title, "version": version, "lines": lines} | json.loads(
        json.dumps(report.as_dict())
    )


def line_of(folder: Path, file: str, has: str, what: str) -> dict:
    """Where a line of theirs is, in what was run."""
    text = (folder / file).read_text().splitlines()
    numbers = [k for k, line in enumerate(text, 1) if has in line]
    if not numbers:
        raise SystemExit(f"{file} has no line with {has!r}: look again, and correct us")
    return {
        "file": file, "line": numbers[-1], "text": text[numbers[-1] - 1].strip(),
        "what": what,
    }  # fmt: skip


def write(results: dict) -> None:
    """Put the table into the page, between its marks."""
    from focusfl.conformance import ROWS

    heads = ["package", "exact in", "not exact in", "not tried", "behaves like"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for name in PACKAGES:
        if name in results:
            lines.append(_row(_cells(results[name], list(ROWS))))
    lines += ["", "The lines that decide, in the versions above:", ""]
    for name in PACKAGES:
        for line in results.get(name, {}).get("lines", []):
            where = f"{line['file']}:{line['line']}"
            text = line["text"].replace("`", "'")
            lines.append(f"- {results[name]['title']}: `{where}`, `{text}`: {line['what']}.")
    if NOT_RUN:
        lines += ["", "Not run:", ""]
        lines += [f"- {name}: {why}" for name, why in NOT_RUN.items()]
    made = f"{BEGIN}\n" + "\n".join(lines) + f"\n{END}"
    page = PAGE.read_text()
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, page, flags=re.S))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cells(one: dict, names: list[str]) -> list[str]:
    """A line of the table: rows by what became of them, and the rule."""
    from focusfl.conformance import Report, RowReport

    rows = tuple(RowReport(**row | {"like": tuple(row["like"])}) for row in one["rows"])
    exact = [row.row for row in rows if row.verdict == "exact"]
    done = [row for row in rows if row.verdict != "not applicable"]
    wrong = [
        f"{row.row} ({row.verdict}" + (f" {row.error:.2g})" if row.error else ")")
        for row in done
        if row.verdict != "exact"
    ]
    left = [name for name in names if name not in [row.row for row in done]]
    said = Report(rows, tuple(one["like"]), one["rules"]).words()
    cells = [f"{one['title']}, {one['version']}"]
    cells += [", ".join(part) for part in (exact, wrong, left)]
    return [*cells, said.removeprefix("behaves like ")]


if __name__ == "__main__":
    main()
