"""The site builds, loads nothing from elsewhere, and works from disk."""

import inspect
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import focusfl as ff

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LOADS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\b(?:src|srcset)=["']?
        (?:https?:)?//
    | <link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon))
        [^>]*\bhref=["']?(?:https?:)?//
    | (?:url\(|@import|\bimport|\bfrom)\s*["'(]*(?:https?:)?//""",
    re.X,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it: any warning is an error."""
    if not find_spec("mkdocs") or not find_spec("mkdocstrings"):
        pytest.skip("the site needs mkdocs: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site):
    for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        found = LOADS.search(file.read_text())
        assert not found, f"{file.relative_to(site)}: {found and found[0]}"


def test_the_search_finds_a_page_of_a_site_that_was_opened_from_disk(site, browser):
    browser.set_window_size(1400, 900)
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.querySelector('.md-search__input').focus()")
    browser.switch_to.active_element.send_keys("Scaffnew")
    links = "return [...document.querySelectorAll('.md-search-result a')]"
    limit = time.monotonic() + 120  # seconds: an index is made of it all, once
    while not (found := browser.execute_script(links + ".map(a => a.href)")):
        assert time.monotonic() < limit, "nothing was found"
        time.sleep(0.2)
    assert any("api/algorithms.html" in link for link in found)


WIDER = """
return [...document.querySelectorAll("article *")].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest(".md-typeset__scrollwrap, pre, .highlight, .doc-signature")
).map(e => e.tagName + " " + e.textContent.slice(0, 40))
"""


@pytest.mark.parametrize("page", ["start.html", "suite.html"])
def test_a_page_is_no_wider_than_a_phone(page, site, browser):
    """A table too wide for it scrolls by itself."""
    browser.set_window_size(390, 900)
    browser.get((site / page).as_uri())
    limit = time.monotonic() + 120  # seconds: the theme wraps tables once the page is there
    while sticking_out := browser.execute_script(WIDER):
        assert time.monotonic() < limit, sticking_out
        time.sleep(0.2)


def test_the_references_are_made_of_the_code_and_leave_nothing_unsaid(site):
    study = (site / "study-file.html").read_text()
    named = re.findall(r'id="(?:algorithms|problem|participation)-(\w+)"', study)
    lists = (ff.ALGORITHMS, ff.problems.PROBLEMS, ff.participation.PARTICIPATION)
    assert set(named) == {kind for kinds in lists for kind in kinds}
    lines = re.findall(r"<tr>(.*?)</tr>", study, re.S)
    cells = [re.findall(r"<td>(.*?)</td>", line, re.S) for line in lines]
    unsaid = [own[0] for own in cells if own and not own[-1].strip()]
    assert len(cells) > 80 and unsaid == []
    commands = (site / "commands.html").read_text()
    for name in ("run", "report", "reproduce ridge", "doctor", "data fetch"):
        assert f">focusfl {name}<" in commands
    page = (site / "data.html").read_text()
    assert all(f"<code>{name}</code>" in page for name in ff.data.DATA_SETS)
    assert "--resume" in commands
    assert "<!-- reference" not in study + commands + page


def test_every_argument_of_the_engines_has_a_line_in_a_table(site):
    page = (site / "api" / "running.html").read_text()
    tables = re.findall(r"<table>.*?</table>", page, re.S)
    names = [set(re.findall(r"<code>(\w+)</code>", table)) for table in tables]
    for function in (ff.simulate, ff.sweep, ff.loop):
        wanted = set(inspect.signature(function).parameters)
        assert any(wanted <= found for found in names), function.__name__
