"""What the page knows: curves and schedules, small enough to be mailed."""

from typing import Any

import numpy as np

from focusfl.experiment.results import AXES, Results
from focusfl.experiment.summary import TARGET
from focusfl.report import bands
from focusfl.report.groups import Group, by_scene, group_looks, grouped, study_names
from focusfl.report.html.schedule import schedule

POINTS = 600  # of a curve, at most
NUMBERS = 600_000  # in all curves together, about six bytes each
BINS = 1_600_000  # in all pictures of who took part together, a byte each


def contents(studies: list[Results]) -> dict[str, Any]:
    """Everything the page draws, for its script."""
    all_groups = [grouped(found) for found in studies]
    curves = sum(
        len(bands.metrics_of(one.runs)) for groups in all_groups for one in groups
    )
    scenes = sum(len(found.participants) for found in studies)
    points = int(np.clip(NUMBERS / (max(1, curves) * (len(AXES) + 3)), 24, POINTS))
    bins = BINS // max(1, scenes)
    return {
        "axes": [{"name": name, "label": bands.AXIS_LABELS[name]} for name in AXES],
        "smallest": bands.SMALLEST,
        "studies": [
            {"name": name, **_study(found, groups, points, bins)}
            for name, found, groups in zip(
                study_names(studies), studies, all_groups, strict=True
            )
        ],
    }


def _study(
    found: Results, groups: list[Group], points: int, bins: int
) -> dict[str, Any]:
    metrics = bands.metrics_of(found.runs)
    looks = group_looks(groups)
    return {
        "target": TARGET,
        "metrics": [
            {
                "name": name,
                "label": bands.label(name),
                "relative": bands.relative_label(name),
                "rising": name == bands.RISING,
            }
            for name in metrics
        ],
        "lines": [
            {"label": label, "colour": look["color"], "dash": _dash(look["linestyle"]),
             "width": look["linewidth"], "marker": look["marker"]}
            for label, look in looks.items()
        ],
        "scenes": [
            _scene(found, scene, own, list(looks), points, bins)
            for scene, own in by_scene(groups).items()
        ],
    }  # fmt: skip


def _scene(
    found: Results,
    scene: str,
    groups: list[Group],
    labels: list[str],
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
    rounds, clients = found.participants[scene]
    marginals = np.asarray(found.manifest["scenes"][scene]["p"], float)
    return {
        "name": scene,
        "lowest": lowest,  # what the numbers of a curve are counted from, if not 0
        "groups": [
            _group(one, labels) | {"curves": {
                metric: _curve(curve, lowest.get(metric, 0.0))
                for metric, curve in own.items()
            }}
            for one, own in zip(groups, curves, strict=True)
        ],
        "clients": schedule(rounds, clients, marginals, bins),
    }  # fmt: skip


def _group(one: Group, labels: list[str]) -> dict[str, Any]:
    theory = one.row.get("theory") or {}
    return {
        "line": labels.index(one.label),
        "lr": one.row["lr"],
        "local_steps": one.local_steps,
        "seeds": len(one.runs),
        "verdict": one.verdict(),
        "diverged": one.diverged,
        "theory": {key: theory.get(key) for key in ("rate", "bias", "floor")},
        "tracking_gap": gap.mid if (gap := one.spread("tracking_gap")) else None,
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
