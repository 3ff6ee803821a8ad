"""What the page knows: curves and schedules, small enough to be mailed."""

from typing import Any

import numpy as np

from focusfl.core.metrics import rises
from focusfl.studies.report import bands
from focusfl.studies.report.columns import COLUMNS
from focusfl.studies.report.groups import (
    Group,
    by_scenario,
    by_step,
    group_looks,
    grouped,
    study_names,
)
from focusfl.studies.report.html.per_client import strips
from focusfl.studies.report.html.schedule import schedule
from focusfl.studies.store import AXES, Study, axes_of
from focusfl.studies.summary import TARGET

POINTS = 600  # of a curve, at most
FIGURES = 600_000  # in all curves together, about six bytes each
HEIGHTS = [name for name, column in COLUMNS.items() if "steps" in column.places]
BINS = 1_600_000  # in all pictures of who took part together, a byte each


def contents(studies: list[Study]) -> dict[str, Any]:
    """Everything the page draws, for its script."""
    all_groups = [grouped(study) for study in studies]
    curves = sum(len(bands.metrics_of(group.runs)) for groups in all_groups for group in groups)
    scenarios = sum(len(study.participants) for study in studies)
    points = int(np.clip(FIGURES / (max(1, curves) * (len(AXES) + 3)), 24, POINTS))
    bins = BINS // max(1, scenarios)
    algorithms = [group.algorithm for groups in all_groups for group in groups]
    axes = axes_of(run for study in studies for run in study.runs)
    return {
        "axes": [{"name": name, "label": bands.AXIS_LABELS[name]} for name in axes],
        "smallest": bands.SMALLEST,
        "studies": [
            {"name": name, **_study(study, groups, algorithms, points, bins)}
            for name, study, groups in zip(study_names(studies), studies, all_groups, strict=True)
        ],
    }


def _study(
    study: Study, groups: list[Group], algorithms: list[str], points: int, bins: int
) -> dict[str, Any]:
    short, full = (group_looks(groups, short=short, among=algorithms) for short in (True, False))
    # Where only the best steps are shown a line has another name, and another look.
    looks = [*short.items(), *full.items()]
    best_lines = {name: place for place, name in enumerate(short)}
    lines = {name: len(short) + place for place, name in enumerate(full)}
    return {
        "target": TARGET,
        "grid": any(not group.best for group in groups),
        "metrics": [
            {
                "name": name,
                "label": bands.label(name),
                "short": bands.short(name),
                "relative": bands.relative_label(name),
                "rising": rises(name),
            }
            for name in bands.metrics_of(run for group in groups for run in group.runs)
        ],
        "lines": [
            {"label": label, "colour": look["color"], "dash": _dash(look["linestyle"]),
             "width": look["linewidth"], "marker": look["marker"]}
            for label, look in looks
        ],
        "heights": [
            {
                "name": name,
                "label": f"{groups[0].row['measure']} at the end" if name == "error"
                else COLUMNS[name].title,
                "short": COLUMNS[name].title,
                "rising": COLUMNS[name].rising,
            }
            for name in HEIGHTS  # what is drawn against the step size
            if any(group.quartiles(name) for group in groups)
        ],
        "scenarios": [
            _scenario(study, scenario, scenario_groups, best_lines, lines, points, bins)
            for scenario, scenario_groups in by_scenario(groups).items()
        ],
    }  # fmt: skip


def _scenario(
    study: Study, scenario: str, groups: list[Group], best_lines: dict[str, int],
    lines: dict[str, int], points: int, bins: int,
) -> dict[str, Any]:  # fmt: skip
    curves = [
        {
            metric: bands.thinned(band, points)
            for metric in bands.metrics_of(group.runs)
            if (band := bands.band(group.runs, metric)) is not None
        }
        for group in groups
    ]
    losses = [float(by_metric["loss"].low.min()) for by_metric in curves if "loss" in by_metric]
    lowest = {"loss": min(losses)} if losses else {}
    rounds, clients = study.participants[scenario]
    marginals = np.asarray(study.manifest["scenarios"][scenario]["p"], float)
    return {
        "name": scenario,
        "lowest": lowest,  # what the numbers of a curve are counted from, if not 0
        "groups": [
            _group(group, best_lines, lines) | {"curves": {
                metric: _curve(band, lowest.get(metric, 0.0))
                for metric, band in by_metric.items()
            }}
            for group, by_metric in zip(groups, curves, strict=True)
        ],
        "grids": [
            {"line": best_lines[name], "name": grid[0].name,
             "steps": [_step(group) for group in grid]}
            for name, grid in by_step(groups).items()
        ],
        "served": strips(groups, best_lines),
        "clients": schedule(rounds, clients, marginals, bins),
    }  # fmt: skip


def _step(group: Group) -> dict[str, Any]:
    """A point of a grid: what its runs end with, in quartiles."""
    ends = {name: group.quartiles(name) for name in HEIGHTS}
    return {
        "lr": group.row["lr"],
        "best": group.best,
        "verdict": group.verdict(),
        **{name: _short(np.array(end)) for name, end in ends.items() if end is not None},
    }


def _group(group: Group, best_lines: dict[str, int], lines: dict[str, int]) -> dict[str, Any]:
    theory = group.row.get("theory") or {}
    return {
        "name": group.name,
        "best_line": best_lines[group.short] if group.best else None,
        "line": lines[group.label],  # where all steps are shown
        "lr": group.row["lr"],
        "local_steps": group.local_steps,
        "seeds": len(group.runs),
        "verdict": group.verdict(),
        "diverged": group.diverged,
        "theory": {key: theory.get(key) for key in ("rate", "bias", "floor")},
        "tracking_gap": gap.mid if (gap := group.quartiles("tracking_gap")) else None,
    }


def _curve(thin: bands.Band, base: float) -> dict[str, Any]:
    single = np.array_equal(thin.low, thin.high)
    return {
        **{axis: _short(values) for axis, values in thin.axes.items()},
        "mid": _short(thin.mid - base),
        "low": None if single else _short(thin.low - base),
        "high": None if single else _short(thin.high - base),
    }


def _short(values: np.ndarray) -> list[float | int | None]:
    """Five digits of each, all of whole numbers; None for what is infinite."""
    return [
        None if not np.isfinite(v) else int(v) if v.is_integer() else float(f"{v:.4e}")
        for v in values.tolist()
    ]


def _dash(style: str | tuple) -> str:
    """A line of matplotlib's, as SVG wants it."""
    if isinstance(style, str):
        return {"-": "", ":": "1.5 2.5"}[style]
    return " ".join(f"{length:g}" for length in style[1])
