"""Run the notebooks again, in place; with FOCUSFL_DATA set, on real hospitals."""

import argparse

import nbformat
from nbclient import NotebookClient
from svg import PICTURES

from focusfl.core.files import renamed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one of them, not written")
    quick = parser.parse_args().quick
    for path in sorted((PICTURES.parent / "notebooks").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        NotebookClient(book, record_timing=False).execute()
        if quick:
            return print(f"{path.name}: {len(book.cells)} cells")
        book.metadata.pop("language_info")  # the version of whoever ran it last
        with renamed(path) as part:
            nbformat.write(book, part)


if __name__ == "__main__":
    main()
