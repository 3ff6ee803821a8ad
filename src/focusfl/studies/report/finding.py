"""What a study found, a sentence for every scenario: who is fastest, by how much."""

import numpy as np

from focusfl.studies.report.columns import COLUMNS, GOAL, short
from focusfl.studies.report.groups import Group, bests, by_scenario
from focusfl.studies.store import LOSS

NAMED = 3  # that are named one by one


def findings(groups: list[Group]) -> list[tuple[str, str]]:
    """Each scenario, and a sentence about it."""
    return [(name, _sentence(rivals)) for name, rivals in by_scenario(bests(groups)).items()]


def condition(groups: list[Group]) -> str:
    """What the sentences hold for."""
    seeds = max(len(group.runs) for group in groups)
    many = f"medians over {seeds} seeds" if seeds > 1 else "one seed"
    if any(not group.best for group in groups):
        return f"Each at the best step of its grid, {many}."
    return f"{many}.".capitalize()


def _sentence(groups: list[Group]) -> str:
    first, *others = sorted(groups, key=lambda group: group.score)
    if first.diverged:
        return "every run has diverged."
    what = "accuracy" if first.judged_by == "accuracy" else "rounds_to_target"
    if not np.isfinite(first.median(what)):
        what = "error"
    near = [o for o in others if not o.diverged and np.isfinite(o.median(what))][:1]
    sentence = _compared(first, near[0], what) if near else _alone(first, what)
    if what == "error" and first.row["measure"] != LOSS:
        sentence = f"nobody reaches a {first.row['measure']} of {GOAL}; {sentence}"
    behind = [
        o for o in others if o.diverged or not np.isfinite(o.median(what))
    ]  # fmt: skip
    return "; ".join([sentence, *_behind(behind)]) + "."


def _alone(group: Group, what: str) -> str:
    number = COLUMNS[what].write(group.median(what))
    if what == "rounds_to_target":
        goal = f"a {group.row['measure']} of {GOAL}"
        return f"{group.name} reaches {goal} in {number} rounds ({_step(group)})"
    loss = "a loss of " * (group.row["measure"] == LOSS and what == "error")
    return f"{group.name} ends at {loss}{_number(group, what)}"


def _compared(first: Group, second: Group, what: str) -> str:
    """The best and the next; where the quartiles overlap they are about the same."""
    names = [group.name for group in (first, second)]
    goal = f"a {first.row['measure']} of {GOAL}"
    word, same, reached = {
        "rounds_to_target": ("fastest", "as fast", f" to {goal}"),
        "error": ("closest", "as close", ""),
        "accuracy": ("most accurate", "as accurate", ""),
    }[what]
    loss = what == "error" and first.row["measure"] == LOSS
    if loss:
        word, same = "lowest in loss", "as low in loss"
    ends = [_number(group, what) for group in (first, second)]
    if not _apart(first, second, what):
        return f"{' and '.join(names)} are about {same}{reached}: {' and '.join(ends)}"
    a, b = first.median(what), second.median(what)
    ahead = f"{_ratio(b, a)} times {same} as"
    if what == "accuracy":
        ahead = f"{100 * (a - b):.1f} points above"
    if loss:  # which may have any sign
        ahead = f"{short(b - a)} below"
    return f"{names[0]} is {word}{reached}: {ends[0]}, {ahead} {names[1]}: {ends[1]}"


def _apart(first: Group, second: Group, what: str) -> bool:
    a, b = first.quartiles(what), second.quartiles(what)
    assert a is not None and b is not None  # both have a median
    if min(len(first.runs), len(second.runs)) == 1:
        return a.mid != b.mid
    return a.low > b.high if COLUMNS[what].rising else a.high < b.low


def _behind(groups: list[Group]) -> list[str]:
    """Those who do not get where the first does."""
    if len(groups) > NAMED:
        return [f"{len(groups)} others never do"]
    return [
        f"{group.name} " + ("diverges" if group.diverged else f"ends at {_number(group, 'error')}")
        for group in groups
    ]


def _number(group: Group, what: str) -> str:
    """A number with the step it was got at, and what it must not be taken for."""
    text = COLUMNS[what].write(group.median(what))
    unit = " rounds" if what == "rounds_to_target" else ""
    falling = what == "error" and group.word == "falling"
    return f"{text}{unit} ({_step(group)}{', still falling' * falling})"


def _step(group: Group) -> str:
    return f"lr {short(group.median('lr'))}"


def _ratio(large: float, small: float) -> str:
    ratio = large / small if small else np.inf
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
