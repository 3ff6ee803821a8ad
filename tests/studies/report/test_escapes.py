"""Names that would leave their field, or be obeyed by a terminal, do neither."""

import csv
import io

import pytest
from made_up import make_run, save

from focusfl.core.validation import printable
from focusfl.studies.report import export, html, output, table, terminal
from focusfl.studies.store import Study

EVIL = "e\x1b]0;pwned\x07\x9b31m\r\n|vil,\t\u202e"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """As somebody else's folder may hold them; a study could not be called so."""
    folder = tmp_path_factory.mktemp("evil")
    save(folder, [make_run(EVIL, EVIL, seed, bias=0.1) for seed in (0, 1)], name=EVIL)
    return Study.load(folder)


def controls(text):
    return {sign for sign in text if not sign.isprintable()} - {"\n"}


def test_control_characters_are_told_by_their_code():
    assert printable("plain – ½ 名") == "plain – ½ 名"
    assert printable("a\x1b[31mb\n") == r"a\x1b[31mb\n"
    assert printable("a\nb\r", lines=True) == "a\nb\\r"


def test_no_control_character_reaches_the_terminal(found, capsys):
    output.print_report(found)
    terminal.say(EVIL)
    said = capsys.readouterr()
    assert "pwned" in said.out and "pwned" in said.err
    assert not controls(said.out) and not controls(said.err)


def test_names_stay_in_their_field_of_tables(found):
    for text in (export.curves_csv(found), export.table_csv(found)):
        rows = list(csv.reader(io.StringIO(text)))
        assert not controls(text) and len({*map(len, rows)}) == 1
        assert rows[1][:2] == [printable(EVIL)] * 2
        assert text.count("\n") == len(rows), "a row is more than a line"
    assert not controls(export.latex(found))
    lines = table.markdown(("a", EVIL), [(EVIL, "1")]).splitlines()
    assert len(lines) == 3 and not any(map(controls, lines))
    assert all(line.replace(r"\|", "").count("|") == 3 for line in lines)


def test_names_stay_in_their_element_of_the_page(tmp_path):
    name = "</script><img src=x onerror=alert(1)>"
    page = html.page([save(tmp_path, [make_run(name, "focus", 0)], name=name)])
    assert "<img" not in page and page.count("</script>") == 2
