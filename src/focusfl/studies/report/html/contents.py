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
    all_groups = [grouped(found) for found in studies]
    curves = sum(len(bands.metrics_of(one.runs)) for groups in all_groups for one in groups)
    scenarios = sum(len(found.participants) for found in studies)
    points = int(np.clip(FIGURES / (max(1, curves) * (len(AXES) + 3)), 24, POINTS))
    bins = BINS // max(1, scenarios)
    names = [one.algorithm for groups in all_groups for one in groups]
    known = axes_of(run for found in studies for run in found.runs)
    return {
        "axes": [{"name": name, "label": bands.AXIS_LABELS[name]} for name in known],
        "smallest": bands.SMALLEST,
        "studies": [
            {"name": name, **_study(found, groups, names, points, bins)}
            for name, found, groups in zip(study_names(studies), studies, all_groups, strict=True)
        ],
    }


def _study(
    found: Study, groups: list[Group], names: list[str], points: int, bins: int
) -> dict[str, Any]:
    runs = [run for one in groups for run in one.runs]
    short, whole = (group_looks(groups, short=short, among=names) for short in (True, False))
    # Where only the best steps are shown a line has another name, and another look.
    looks = [*short.items(), *whole.items()]
    numbers = {one.label: len(short) + list(whole).index(one.label) for one in groups}
    bests = {one.short: list(short).index(one.short) for one in groups}
    return {
        "target": TARGET,
        "grid": any(not one.best for one in groups),
        "metrics": [
            {
                "name": name,
                "label": bands.label(name),
                "short": bands.short(name),
                "relative": bands.relative_label(name),
                "rising": rises(name),
            }
            for name in bands.metrics_of(runs)
        ],
        "lines": [
            {"label": label, "colour": look["color"], "dash": _dash(look["linestyle"]),
             "width": look["linewidth"], "marker": look["marker"]}
            for label, look in looks
        ],
        "heights": _heights(groups),
        "scenarios": [
            _scenario(found, scenario, own, (bests, numbers), points, bins)
            for scenario, own in by_scenario(groups).items()
        ],
    }  # fmt: skip


def _heights(groups: list[Group]) -> list[dict[str, Any]]:
    """What is drawn against the step size."""
    found = [name for name in HEIGHTS if any(one.quartiles(name) for one in groups)]
    ends = {"error": f"{groups[0].row['measure']} at the end"}
    return [
        {
            "name": name,
            "label": ends.get(name, COLUMNS[name].title),
            "short": COLUMNS[name].title,
            "rising": COLUMNS[name].rising,
        }
        for name in found
    ]


def _scenario(
    found: Study,
    scenario: str,
    groups: list[Group],
    lines: tuple[dict[str, int], dict[str, int]],
    points: int,
    bins: int,
) -> dict[str, Any]:
    curves = [
        {
            metric: bands.thinned(whole, points)
            for metric in bands.metrics_of(one.runs)
            if (whole := bands.band(one.runs, metric)) is not None
        }
        for one in groups
    ]
    losses = [float(own["loss"].low.min()) for own in curves if "loss" in own]
    lowest = {"loss": min(losses)} if losses else {}
    rounds, clients = found.participants[scenario]
    marginals = np.asarray(found.manifest["scenarios"][scenario]["p"], float)
    return {
        "name": scenario,
        "lowest": lowest,  # what the numbers of a curve are counted from, if not 0
        "groups": [
            _group(one, *lines) | {"curves": {
                metric: _curve(curve, lowest.get(metric, 0.0))
                for metric, curve in own.items()
            }}
            for one, own in zip(groups, curves, strict=True)
        ],
        "grids": [
            {"line": lines[0][name], "name": own[0].name,
             "steps": [_step(one) for one in own]}
            for name, own in by_step(groups).items()
        ],
        "served": strips(groups, lines[0]),
        "clients": schedule(rounds, clients, marginals, bins),
    }  # fmt: skip


def _step(one: Group) -> dict[str, Any]:
    """A point of a grid: what its runs end with, in quartiles."""
    ends = {name: one.quartiles(name) for name in HEIGHTS}
    return {
        "lr": one.row["lr"],
        "best": one.best,
        "verdict": one.verdict(),
        **{name: _short(np.array(s)) for name, s in ends.items() if s is not None},
    }


def _group(one: Group, bests: dict[str, int], numbers: dict[str, int]) -> dict[str, Any]:
    theory = one.row.get("theory") or {}
    return {
        "name": one.name,
        "best_line": bests[one.short] if one.best else None,
        "line": numbers[one.label],  # where all steps are shown
        "lr": one.row["lr"],
        "local_steps": one.local_steps,
        "seeds": len(one.runs),
        "verdict": one.verdict(),
        "diverged": one.diverged,
        "theory": {key: theory.get(key) for key in ("rate", "bias", "floor")},
        "tracking_gap": gap.mid if (gap := one.quartiles("tracking_gap")) else None,
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
