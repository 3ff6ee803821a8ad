"""Run the notebooks again, in place; with FOCUSFL_DATA set, on real hospitals."""

import nbformat
from nbclient import NotebookClient
from svg import PICTURES

from focusfl.files import renamed

if __name__ == "__main__":
    for path in sorted((PICTURES.parent / "notebooks").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        NotebookClient(book, record_timing=False).execute()
        book.metadata.pop("language_info")  # the version of whoever ran it last
        with renamed(path) as part:
            nbformat.write(book, part)
