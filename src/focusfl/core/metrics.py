"""Metrics: their names, which way is better, and how they summarize clients."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.core.validation import shown

# Columns that metrics stand beside in tables: none of them may be called so.
TAKEN = frozenset(
    "participation algorithm lr local_steps seed client round vectors_sent gradients "
    "seconds simulated_seconds lost down up bytes_up participation_round "
    "participation_client epsilon epsilon/median visits_left".split()
)
LONGEST = 100  # letters of a metric's name
WORST, TENTH, SPREAD = "worst", "worst_tenth", "spread"
# By a word of its name: of which metrics more is better, and of which less.
RISING = frozenset(
    "accuracy acc auc auroc auprc concordance dice f1 iou jaccard kappa mcc ndcg "
    "precision psnr r2 recall score sensitivity specificity ssim".split()
)
FALLING = frozenset(
    "brier cost deviance distance divergence error gap loss losses mae mape mse nll "
    "norm perplexity regret residual risk rmse suboptimality".split()
)


def check_names(names: Iterable[Any]) -> None:
    """Raise unless metrics of these names can be told from what stands beside them."""
    for name in names:
        fit = isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST
        if not fit or name in TAKEN:
            raise ValueError(
                f"a metric must have a printable name of at most {LONGEST} letters "
                f"that is none of {', '.join(sorted(TAKEN))}; got {shown(name)}."
            )


def rises(metric: str) -> bool:
    """Whether more of a metric is better; of all but those named RISING, less is."""
    name, _, what = metric.partition("/")
    return what != SPREAD and _last_word(name) in RISING


def in_words(metric: str) -> str:
    """The name of a metric for people."""
    name, _, what = metric.replace("_", " ").partition("/")
    if not what:
        return name
    return f"{name}, {what} client" if what == WORST else f"{name}, {what}"


def eval_data_of(problem: Any, per_client: bool) -> Tree:
    """What `evaluate` looks at."""
    if not per_client:
        return problem.eval_data
    return {"common": problem.eval_data, "clients": problem.client_eval_data}


def evaluate(objective: Any, per_client: bool, x: Tree, eval_data: Tree) -> dict[str, Any]:
    """The metrics of a model, with those of clients' own if they are asked for."""
    common = eval_data if not per_client else eval_data["common"]
    values = objective.evaluate(x, common)
    check_names(values)
    if not per_client:
        return values
    return {**values, **summarize_clients(evaluate_clients(objective, x, eval_data), values)}


def evaluate_clients(objective: Any, x: Tree, eval_data: Tree) -> dict[str, Any]:
    """Evaluate a model on each client's own data: arrays of shape (clients,)."""
    values = objective.evaluate_clients(x, eval_data["clients"])
    check_names(values)
    return values


def summarize_clients(
    clients: Mapping[str, Any], others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Give three numbers per metric: the worst client's, the mean over the tenth of
    clients (rounded up) that have the worst, and the standard deviation over clients.

    Raise if nobody can know which end is the worst, or if `others` has such a name.
    """
    summary: dict[str, Any] = {}
    for name, values in clients.items():
        if not has_direction(name):
            raise ValueError(
                f"per_client=True must know whether more of {name!r} is better; "
                f"call it {name}_score if it is, {name}_error if not."
            )
        if not hasattr(values, "__array_namespace__"):
            values = np.asarray(values)  # torch's
        ordered = values.__array_namespace__().sort(values)
        few = -(-len(values) // 10)
        worst = ordered[:few] if rises(name) else ordered[-few:]
        summary |= {
            f"{name}/{WORST}": worst[0] if rises(name) else worst[-1],
            f"{name}/{TENTH}": worst.mean(),
            f"{name}/{SPREAD}": values.std(),
        }
    if clash := summary.keys() & (others or {}).keys():
        raise ValueError(
            f"{min(clash)} is a metric that per_client=True adds; call yours otherwise."
        )
    return summary


def has_direction(metric: str) -> bool:
    """Whether a metric's name says if more of it is better."""
    return bool(_last_word(metric))


def _last_word(name: str) -> str:
    """The last word of a name that says which way is better; none if there is none."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((word for word in reversed(words) if word in RISING | FALLING), "")
