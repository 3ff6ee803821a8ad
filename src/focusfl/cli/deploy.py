"""`focusfl deploy`: parse, call, print."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focusfl.cli import hosts
from focusfl.cli.options import folder, need_flower
from focusfl.core.validation import printable

if TYPE_CHECKING:
    from focusfl.deploy.local import Outcome

EXIT_UNHEALTHY = 1  # results are there, and not what they were to be
RUNS = Path("runs")  # where what is run goes
MAX_SITES = 20  # sites whose rounds are counted in words


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommands, by the function that adds any command."""
    _add_local(command)
    init = command(
        "init", _init, "write a Flower app, ready for several hosts",
        "focusfl deploy init hospitals",
    )  # fmt: skip
    init.add_argument("folder", type=Path, help="to be made")
    hosts.add(command)
    status = command(
        "status", _status, "say what runs of what `deploy local` has started",
        "focusfl deploy status runs",
    )  # fmt: skip
    status.add_argument("folder", type=Path, nargs="?", default=RUNS)
    watch = command(
        "watch", _serve, "show how jobs are doing, on a page and for Prometheus",
        "focusfl deploy watch runs/deploy-study --port 8484",
    )  # fmt: skip
    watch.add_argument("folder", type=Path, nargs="?", default=RUNS)
    watch.add_argument(
        "--port", type=int, default=8484, help="of this machine alone (8484; 0: any)"
    )
    stop = command(
        "stop", _stop, "stop what `deploy local` has started in a folder",
        "focusfl deploy stop runs/deploy-study",
    )  # fmt: skip
    stop.add_argument("folder", type=Path, nargs="?", default=RUNS)


def _add_local(command: Callable[..., argparse.ArgumentParser]) -> None:
    local = command(
        "local", _local, "run a study on Flower, on real processes of this machine",
        "focusfl deploy local study.toml --clients 4 --tls",
    )  # fmt: skip
    local.add_argument("what", type=Path, metavar="CONFIG", help="TOML file of a study, or an app")
    local.add_argument("--clients", type=int, help="SuperNodes (as in the study)")
    local.add_argument("--algorithm", help="of the study (its first)")
    local.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="change one setting of the study; may be repeated",
    )  # fmt: skip
    local.add_argument(
        "--tls", action="store_true", help="encrypt, and let known SuperNodes in alone"
    )
    local.add_argument(
        "--secure", type=int, nargs="?", const=3, metavar="MINIMUM",
        help="an honest server learns sums alone, of at least so many pushes (3)",
    )  # fmt: skip
    local.add_argument(
        "--deadline", type=float, metavar="SECONDS",
        help="after which a round closes without who is missing (60)",
    )  # fmt: skip
    local.add_argument(
        "--target", type=int, metavar="REPLIES",
        help="after which a round closes, and later ones count in the next (all)",
    )  # fmt: skip
    local.add_argument("--out", type=Path, help="folder for it all (runs/deploy-NAME)")


def _local(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import study
    from focusfl.deploy.local import local_app, local_study
    from focusfl.flower import events

    if options.what.is_dir():
        names = ("set", "algorithm", "clients", "deadline", "target", "secure")
        own = [f"--{n}" for n in names if getattr(options, n) not in (None, [], False)]
        if own:
            raise ValueError(
                f"{', '.join(own)} {'are' if own[1:] else 'is'} for studies; "
                f"{options.what} has its settings in its pyproject.toml, sites among "
                "them, or in its Job."
            )
        place = folder(options, f"deploy-{options.what.resolve().name}")
        outcome = local_app(options.what, place, _watch, tls=options.tls)
        if outcome is None:
            return _end_unknown(options, place)
    else:
        deployed = study.load(
            options.what, options.set, options.algorithm, options.clients, options.secure
        )  # fmt: skip
        place = folder(options, f"deploy-{deployed.study.name}")
        given = {"deadline": options.deadline, "target": options.target}
        more = {name: value for name, value in given.items() if value is not None}
        outcome = local_study(deployed, place, _watch, tls=options.tls, settings=more)
    found, files = _summary(outcome), _draw(place)
    if options.json:
        where = {"folder": str(place), "files": [str(file) for file in files]}
        print(json.dumps({**found, **where}, indent=2))
    else:
        print(events.packed(_words(found)))
        print(events.packed(["written:", *map(str, files)]))
    if outcome.why:
        why = printable(" ".join(outcome.why))
        print(f"focusfl: not a healthy end: {why}", file=sys.stderr)
    return EXIT_UNHEALTHY if outcome.why else 0


def _end_unknown(options: argparse.Namespace, place: Path) -> int:
    """Say that an app has ended well, and that nothing else is known of it."""
    why = (
        f"the app has ended well and wrote no events to {place / 'server'}: its Job "
        'must have folder=context.run_config["folder"] to be shown here.'
    )
    found = {"folder": str(place), "files": [], "warnings": [why]}
    print(json.dumps(found, indent=2) if options.json else why)
    return 0


def _watch(event: Mapping[str, Any]) -> None:
    """Show what happens, a line each, on stderr."""
    from focusfl.flower.events import describe

    if words := describe(event):
        print(words, file=sys.stderr, flush=True)


def _summary(outcome: "Outcome") -> dict[str, Any]:
    share = outcome.masks.mean(0).round(3).tolist()
    gap = {} if outcome.gap is None else {"tracking_error": outcome.gap}
    return {
        "rounds": len(outcome.masks), "generations": outcome.generations,
        "late": outcome.late, "seconds": round(outcome.seconds, 1),
        **outcome.metrics, "grad_norm_of": outcome.of, **gap, "participation": share,
        "counted": outcome.counted, "warnings": outcome.warnings,
        "healthy": not outcome.why, "why": list(outcome.why),
    }  # fmt: skip


def _words(found: Mapping[str, Any]) -> list[str]:
    """A summary, to be read: a number each, and how often each site was counted."""
    from focusfl.flower.events import short

    lists = ("participation", "counted", "warnings", "why")
    words = [f"{name} {short(v)}" for name, v in found.items() if name not in lists]
    times = list(found["counted"].items())
    shown = [f"{site} {n}" for site, n in times[:MAX_SITES]]
    left = [f"and {len(times) - MAX_SITES} more"] if len(times) > MAX_SITES else []
    return [*words, "rounds counted:", *shown, *left]


def _draw(place: Path) -> list[Path]:
    """Draw what was found, as of a study; give its files."""
    from focusfl.core.files import write
    from focusfl.studies import store
    from focusfl.studies.report import html

    found = store.Study.load(place)
    names = (store.CURVES, store.MANIFEST, "model.npz")
    files = [place / name for name in names]
    if find_spec("matplotlib"):
        from focusfl.studies.report import figure, plots

        picture = figure.render(plots.plot([found]), "png")
        files.append(write(place / "figure.png", picture))
    return [*files, write(place / "index.html", html.page([found]))]


def _init(options: argparse.Namespace) -> int:
    from focusfl.deploy import apps

    files = apps.init(options.folder)
    if options.json:
        print(json.dumps({"files": [str(file) for file in files]}))
    else:
        print("\n".join(f"written: {file}" for file in files))
    return 0


def _there(options: argparse.Namespace) -> Path:
    """The folder that is looked at."""
    if not options.folder.is_dir() and options.folder != RUNS:
        raise ValueError(f"{options.folder} must be a folder; there is none.")
    return options.folder


def _stop(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import monitor, ownership

    places = [Path(place) for place in monitor.search(_there(options))]
    stopped = {str(place): ownership.stop(place) for place in places}
    found = {place: names for place, names in stopped.items() if names}
    if options.json:
        print(json.dumps(found, indent=2))
    elif not found:
        print(f"nothing runs of what was started in {options.folder}")
    for place, names in found.items() if not options.json else ():
        print(f"{place}: stopped {', '.join(names)}")
    return 0


def _status(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import monitor
    from focusfl.deploy.watch import without_infinity
    from focusfl.flower.events import packed
    from focusfl.studies.report import terminal

    found = monitor.search(_there(options))
    if options.json:
        print(json.dumps(without_infinity(found), indent=2, allow_nan=False))
    elif not found:
        print(f"nothing was started in {options.folder}")
    for place, about in found.items() if not options.json else ():
        rows = [(name, str(pid), state) for name, pid, state in about["processes"]]
        print(packed(f"{place}: {about['progress']}".split()))
        if rows:
            terminal.print_table("", ("", "pid", ""), rows)
        for words in about["notices"]:
            print(packed(words.split()))
        if about["health"]:
            _print_health(about["health"])
    return 0


def _print_health(job: Mapping[str, Any]) -> None:
    """Print who takes part, and what is amiss; in trouble first."""
    from focusfl.flower.events import clock, packed, short
    from focusfl.flower.health import STATES
    from focusfl.studies.report import terminal

    names = ("counted", "late", "unanswered", "refused")
    order = sorted(job["sites"].items(), key=lambda one: STATES.index(one[1]["state"]))
    rows = [
        (name, one["state"], "–" if one["age"] is None else str(one["age"]),
         *(str(one[what]) for what in names), f"{one['error']:.60}")
        for name, one in order[:MAX_SITES]
    ]  # fmt: skip
    titles = ["site", "state", "age in rounds", *names, "last error"]
    if any(one["epsilon"] is not None for _, one in order):
        titles.insert(-1, "epsilon")
        given = (one["epsilon"] for _, one in order)
        words = ["–" if epsilon is None else short(epsilon) for epsilon in given]
        rows = [(*r[:-1], e, r[-1]) for r, e in zip(rows, words, strict=False)]
    terminal.print_table("", titles, rows)
    size = {way: f"{count / 1e6:.3g} MB {way}" for way, count in job["bytes"].items()}
    ago = f"heard {clock(time.time() - job['heard'])} ago,"
    state = job["state"]
    if state == "stopped":
        state = f"stopped after round {job['round']} of {job['rounds']}"
    words = [f"{state},", f"generation {job['generation']},", ago]
    words.append(", ".join(size.values()))
    if len(order) > MAX_SITES:
        words.insert(0, f"and {len(order) - MAX_SITES} more;")
    words += [f"{name} {short(value)}" for name, value in job["metrics"].items()]
    print(packed(words))
    why = " ".join(job["why"])
    told = "healthy" if job["healthy"] else f"not healthy, as it stands: {why}"
    print(packed(f"sites: {told}".split()))
    if job["worse"]:
        print(packed(f"learning: getting worse: {job['worse']}".split()))


def _serve(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy.watch import Watch

    with Watch(_there(options), options.port) as server:
        told = {"url": server.url, "folder": str(options.folder)}
        words = f"{options.folder} is shown at {server.url} until Ctrl-C"
        print(json.dumps(told) if options.json else words, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
