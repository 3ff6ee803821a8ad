"""The notebooks run from top to bottom, and are kept as they ran."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")

BOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
every_book = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


@every_book
def test_it_runs(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=900, resources=place).execute()


@every_book
def test_it_is_kept_executed_small_and_clean(path):
    book = nbformat.read(path, as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs and not any(output.output_type == "error" for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < 150_000
