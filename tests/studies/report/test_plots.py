import re
import zlib

import numpy as np
import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report.columns import COLUMNS, columns_of
from focusfl.studies.report.figure import render
from focusfl.studies.report.groups import grouped
from focusfl.studies.report.output import save_report
from focusfl.studies.report.plots import plot

pytest.importorskip("matplotlib")


def lines(panel):
    found = {line.get_label(): line for line in panel.get_lines()}
    return {label: line for label, line in found.items() if label[0] != "_"}


def test_a_panel_per_scene_a_line_per_group_and_a_band_where_seeds_differ(tmp_path):
    figure = plot([make_study(tmp_path)])
    full, rare = figure.axes
    assert [panel.get_title() for panel in (full, rare)] == ["full", "rare"]
    assert list(lines(full)) == ["FOCUS", "FedAvg", "SCAFFOLD"]
    assert len(full.collections) == 3
    assert full.get_yscale() == "log" and full.get_xlabel() == "rounds"
    assert rare.get_ylim()[1] <= 2e4  # what has diverged does not squeeze the rest


def test_the_line_is_the_median_over_seeds(tmp_path):
    runs = [make_run("a", "focus", seed) for seed in range(3)]
    (panel,) = plot([save(tmp_path, runs)]).axes
    wanted = np.median([run.curves["distance"] for run in runs], axis=0)
    assert np.array_equal(lines(panel)["FOCUS"].get_ydata(), wanted)


def test_axes_scenes_and_algorithms_are_chosen(tmp_path):
    found = make_study(tmp_path)
    figure = plot([found], "vectors-sent", "grad-norm", scenarios=["rare"], algorithms=["focus"])
    (panel,) = figure.axes
    assert list(lines(panel)) == ["FOCUS"]
    assert panel.get_xlabel() == "vectors sent"
    assert figure.get_supylabel() == "‖∇F(x)‖"
    assert lines(panel)["FOCUS"].get_xdata()[-1] == found.runs[0].row["vectors_sent"]


def test_error_is_drawn_against_bytes_where_results_know_them(tmp_path):
    runs = [make_run("rare", "focus", 0, width=80), make_run("rare", "mine", 0)]
    found = save(tmp_path, runs)
    (panel,) = plot([found], "bytes-up").axes
    assert panel.get_xlabel() == "bytes up"
    ends = [line.get_xdata()[-1] for line in lines(panel).values()]
    assert ends == [run.curves["bytes_up"][-1] for run in runs]
    assert ends[0] == 8 * ends[1]
    sent = [COLUMNS["bytes_to_target"].number_of(run) for run in runs]
    assert sent[0] == 8 * sent[1]
    assert "bytes_to_target" in [one.name for one in columns_of(grouped(found))]
    assert {"figure.png", "figure-bytes.png"} <= {f.name for f in save_report(found)}


def test_older_results_have_no_bytes_and_say_so(tmp_path):
    run = make_run("rare", "focus", 0)
    del run.curves["bytes_up"]
    found = save(tmp_path, [run])
    assert "bytes_to_target" not in [one.name for one in columns_of(grouped(found))]
    assert {file.name for file in save_report(found)} & {"figure.png"}
    assert not (tmp_path / "figure-bytes.png").exists()
    with pytest.raises(ValueError, match="--x bytes-up is of newer results"):
        plot([found], "bytes-up")


def test_against_the_best_the_best_is_one(tmp_path):
    full, _ = plot([make_study(tmp_path)], relative=True).axes
    assert np.all(lines(full)["FOCUS"].get_ydata()[1:] <= lines(full)["FedAvg"].get_ydata()[1:])
    assert lines(full)["FOCUS"].get_ydata()[20] == 1


def test_theory_and_a_reference_line_are_added_when_asked_for(tmp_path):
    found = make_study(tmp_path)
    plain, told = plot([found]), plot([found], theory=True, reference=1e-3)
    drawn = [[line for line in figure.axes[0].get_lines() if len(line.get_xdata())]
             for figure in (told, plain)]  # fmt: skip
    assert len(drawn[0]) - len(drawn[1]) == 4  # two rates, a bias, a reference
    (legend,) = told.legends
    assert [text.get_text() for text in legend.get_texts()][-2:] == [
        "predicted rate", "predicted bias, of the mean iterate",
    ]  # fmt: skip


def test_several_studies_are_panels_side_by_side(tmp_path):
    found = [make_study(tmp_path / name, name=name) for name in ("one", "two")]
    titles = [panel.get_title() for panel in plot(found).axes]
    assert titles == ["one: full", "one: rare", "two: full", "two: rare"]


def test_a_figure_is_as_wide_as_it_is_told_whatever_is_in_it(tmp_path):
    figure = plot([make_study(tmp_path)], width=3.4)
    assert figure.get_size_inches()[0] == 3.4


def grid(tmp_path):
    runs = [
        make_run("a", name, seed, lr=lr, rate=rate)
        for name, rates in (("focus", (0.6, 0.5)), ("mifa", (0.7, 0.8)))
        for lr, rate in zip((0.1, 0.2), rates, strict=True)
        for seed in range(2)
    ]
    runs += [make_run("a", "fedavg", 0, lr=0.1, bias=0.1)]
    runs += [make_run("a", "fedavg", 0, lr=0.2, diverged_at=9)]
    return save(tmp_path, runs)


def test_of_a_grid_the_best_steps_are_drawn_and_all_on_request(tmp_path):
    found = grid(tmp_path)
    (panel,) = plot([found]).axes
    assert list(lines(panel)) == ["FOCUS (lr 0.2)", "MIFA (lr 0.1)", "FedAvg (lr 0.1)"]
    (panel,) = plot([found], all_steps=True).axes
    assert len(lines(panel)) == 6


def test_a_grid_is_drawn_against_its_step_sizes(tmp_path):
    figure = plot([grid(tmp_path)], "step-size")
    (panel,) = figure.axes
    assert panel.get_xscale() == panel.get_yscale() == "log"
    assert {label: list(line.get_xdata()) for label, line in lines(panel).items()} == {
        "FOCUS": [0.1, 0.2], "MIFA": [0.1, 0.2], "FedAvg": [0.1],
    }  # fmt: skip
    crosses = [list(line.get_xdata()) for line in panel.get_lines()
               if line.get_marker() == "x"]  # fmt: skip
    assert [lr for found in crosses for lr in found] == [0.2]  # what has diverged
    assert figure.get_supylabel() == "relative error at the end"


@pytest.mark.parametrize(
    "y, words", [("loss", "must be error or"), ("accuracy", "must be error or")]
)
def test_what_a_grid_cannot_be_drawn_by_is_said(tmp_path, y, words):
    with pytest.raises(ValueError, match=words):
        plot([grid(tmp_path)], "step-size", y)


def test_a_study_of_one_step_cannot_be_drawn_against_it(tmp_path):
    with pytest.raises(ValueError, match="needs a study with several lr"):
        plot([make_study(tmp_path)], "step-size")


def test_labels_are_on_one_line_and_the_page_says_the_same(tmp_path):
    found = make_study(tmp_path, optimal_loss=100.0)
    assert plot([found]).get_supylabel() == "‖x − x*‖ / ‖x*‖"
    figure = plot([found], y="suboptimality")
    assert figure.get_supylabel() == "F(x) − F*"
    assert figure.axes[0].get_yscale() == "log"


def test_a_loss_below_zero_is_drawn_without_logarithms(tmp_path):
    run = make_run("a", "focus", 0)
    run.curves["loss"][:] -= 200
    (panel,) = plot([save(tmp_path, [run])], y="loss").axes
    assert panel.get_yscale() == "linear"


def test_a_curve_of_nothing_but_zeros_is_drawn_without_logarithms(tmp_path):
    run = make_run("a", "focus", 0)
    run.curves["loss"][:] = 0.0  # a warning of the library that draws is an error here
    (panel,) = plot([save(tmp_path, [run])], y="loss").axes
    assert panel.get_yscale() == "linear"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"x": "hours"}, "--x must be one of rounds, vectors-sent, "),
        ({"y": "speed"}, "--y must be one of distance, loss, grad_norm"),
        ({"scenarios": ["moon"]}, "--scenarios must be among full, rare; got 'moon'"),
        ({"algorithms": ["sgd"]}, "--algorithms must be among fedavg, focus"),
        ({"width": 0.0}, "--width is in inches"),
    ],
)
def test_what_cannot_be_drawn_is_said(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        plot([make_study(tmp_path)], **options)


@pytest.mark.parametrize(
    "suffix, start", [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")]
)
def test_the_command_writes_what_the_ending_says(command_line, tmp_path, suffix, start, capsys):
    make_study(tmp_path / "study")
    out = tmp_path / f"figure.{suffix}"
    assert command_line("plot", tmp_path / "study", "-o", out) == 0
    assert out.read_bytes().startswith(start)
    assert capsys.readouterr().out == f"written: {out}\n"
    with pytest.raises(ValueError, match=r"must end in \.pdf"):
        command_line("plot", tmp_path / "study", "-o", tmp_path / "figure.gif")


def test_a_pdf_holds_its_letters_as_truetype_and_no_date(tmp_path):
    figure = plot([make_study(tmp_path)])
    pdf = render(figure, "pdf")
    assert pdf == render(figure, "pdf")
    packed = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.S)
    whole = pdf + b"".join(_unpacked(part) for part in packed)
    assert b"/FontFile2" in whole and b"/Type3" not in whole


def _unpacked(part):
    try:
        return zlib.decompress(part)
    except zlib.error:
        return b""
