import csv
import re
import subprocess

import numpy as np
import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report.export import curves_csv, escaped, latex, table_csv
from focusfl.studies.store import AXES, IDENTITY


def rows(text):
    return list(csv.DictReader(text.splitlines()))


def test_curves_are_tidy_and_to_the_last_digit(tmp_path):
    found = make_study(tmp_path)
    table = rows(curves_csv(found))
    assert len(table) == sum(run.row["rounds"] + 1 for run in found.runs)
    assert list(table[0]) == [*IDENTITY, *AXES, "distance", "loss", "grad_norm"]
    first = [row for row in table if row["seed"] == "1"][:61]
    told = [float(row["distance"]) for row in first]
    assert told == found.runs[1].curves["distance"].tolist()


def test_a_metric_that_only_some_runs_have_is_left_empty_elsewhere(tmp_path):
    runs = [make_run("a", "x", 0), make_run("a", "y", 0, accuracy=True)]
    table = rows(curves_csv(save(tmp_path, runs)))
    assert table[0]["accuracy"] == "" and table[-1]["accuracy"] != ""


def test_the_table_has_medians_and_quartiles(tmp_path):
    table = rows(table_csv(make_study(tmp_path)))
    assert len(table) == 6
    focus = table[0]
    low, mid, high = (float(focus[f"error{end}"]) for end in ("_q1", "", "_q3"))
    assert low < mid < high
    assert focus["verdict"] == "exact" and table[1]["rounds_to_target"] == "inf"


def test_the_best_of_each_scene_is_bold(tmp_path):
    text = latex(make_study(tmp_path))
    body = [line for line in text.splitlines() if line.endswith(r"\\")][1:]
    bold = [line.count(r"\bfseries") for line in body]
    # In both scenarios focus is fastest; in full scaffold is as exact.
    assert bold == [4, 0, 2, 4, 0, 0]  # the mean is bold, too
    assert len({line.count("&") for line in body}) == 1
    assert text.count(r"\midrule") == 2 and r"\toprule" in text


def test_names_are_escaped_and_powers_are_written_as_such():
    assert escaped("fed_avg & 50%") == r"fed\_avg \& 50\%"
    assert escaped("biased at 2.1e-2") == r"biased at $2.1\cdot10^{-2}$"
    assert escaped("rounds to 1e-8") == "rounds to $10^{-8}$"
    assert escaped("1.6e0") == "$1.6$"
    assert escaped("∞ or –") == r"$\infty$ or --"


def test_the_file_says_what_it_needs_and_is_balanced(tmp_path):
    text = latex(make_study(tmp_path))
    assert r"\usepackage{booktabs}" in text
    assert text.count("{") == text.count("}") and text.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)_", text)


@pytest.mark.needs("pdflatex")
def test_latex_takes_it(tmp_path):
    (tmp_path / "table.tex").write_text(latex(make_study(tmp_path / "study")))
    (tmp_path / "main.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs}"
        r"\begin{document}\input{table}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_command_writes_by_the_ending(command_line, tmp_path, capsys):
    found = make_study(tmp_path / "study")
    for name, extra, text in [
        ("curves.csv", (), curves_csv(found)),
        ("table.csv", ("--what", "table"), table_csv(found)),
        ("table.tex", (), latex(found)),
    ]:
        out = tmp_path / name
        assert command_line("export", tmp_path / "study", "-o", out, *extra) == 0
        assert out.read_text() == text
        assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize("name, what", [("a.xlsx", ()), ("a.tex", ("--what", "curves"))])
def test_other_files_are_refused(command_line, tmp_path, name, what):
    make_study(tmp_path / "study")
    with pytest.raises(ValueError, match=r"export writes \.csv"):
        command_line("export", tmp_path / "study", "-o", tmp_path / name, *what)


def test_the_table_has_means_and_deviations_beside_medians(tmp_path):
    found = make_study(tmp_path)
    table = rows(table_csv(found))
    own = [run.row["error"] for run in found.runs[3:6]]  # of FedAvg, full
    assert float(table[1]["error_mean"]) == pytest.approx(np.mean(own))
    assert float(table[1]["error_sd"]) == pytest.approx(np.std(own, ddof=1))
    assert table[5]["error_mean"] == "inf" and table[5]["error_sd"] == ""
    text = latex(found)
    assert r"relative error, mean $\pm$ sd" in text
    assert re.search(r"FedAvg.* \$\(2\.1 \\pm 0\.0\)\\cdot10\^\{-2\}\$ ", text)
    one = make_study(tmp_path / "one", seeds=1)
    assert r"\pm" not in latex(one) and rows(table_csv(one))[0]["error_sd"] == ""


def test_columns_are_chosen_in_their_order(command_line, tmp_path):
    make_study(tmp_path / "study")
    for name, chosen, what, first in [
        ("a.csv", "algorithm, error_mean,lr", ("--what", "table"),
         "algorithm,error_mean,error_sd,lr,lr_q1,lr_q3"),
        ("b.csv", "seed,round,loss", (), "seed,round,loss"),
        ("c.tex", "algorithm,error", (), r"algorithm & relative error \\"),
    ]:  # fmt: skip
        words = ("-o", tmp_path / name, "--columns", chosen, *what)
        assert command_line("export", tmp_path / "study", *words) == 0
        lines = (tmp_path / name).read_text().splitlines()
        assert first in (lines[0], lines[min(3, len(lines) - 1)])
    for name in ("d.tex", "d.csv"):
        words = ("-o", tmp_path / name, "--columns", "algorithm,eror")
        with pytest.raises(ValueError, match="unknown column: 'eror'"):
            command_line("export", tmp_path / "study", *words)
        assert not (tmp_path / name).exists()


def test_nothing_is_unclear_on_paper(tmp_path):
    unclear = [make_run("a", "x", s, verdict="unclear") for s in range(2)]
    assert "verdict" not in latex(save(tmp_path / "none", unclear))
    mixed = [*unclear, make_run("a", "x", 2), make_run("a", "y", 0)]
    text = latex(save(tmp_path / "some", mixed))
    assert "unclear" not in text and "exact 1 of 3 &" in text
