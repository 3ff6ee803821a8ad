"""`focusfl deploy`: parse, call, print."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focusfl.cli.options import CHANGES, Option, command, folder, need_flower, print_files
from focusfl.core.validation import printable

if TYPE_CHECKING:
    from focusfl.deploy.local import Outcome

EXIT_UNHEALTHY = 1  # results are there, and not what they were to be
RUNS = Path("runs")  # where what is run goes
MAX_SITES = 20  # sites whose rounds are counted in words


FOLDER = Option("folder", type=Path, nargs="?", default=RUNS)


@command(
    "deploy local", "run a study on Flower, on real processes of this machine",
    "focusfl deploy local study.toml --clients 4 --tls",
    Option("what", type=Path, metavar="CONFIG", help="TOML file of a study, or an app"),
    Option("--clients", type=int, help="SuperNodes (as in the study)"),
    Option("--algorithm", help="of the study (its first)"),
    CHANGES,
    Option("--tls", action="store_true", help="encrypt, and let known SuperNodes in alone"),
    Option("--secure", type=int, nargs="?", const=3, metavar="MINIMUM",
           help="the server reads no push and no model; sums of so many pushes at least (3)"),
    Option("--deadline", type=float, metavar="SECONDS",
           help="after which a round closes without who is missing (60)"),
    Option("--target", type=int, metavar="REPLIES",
           help="after which a round closes, and later ones count in the next (all)"),
    Option("--out", type=Path, help="folder for it all (runs/deploy-NAME)"),
)  # fmt: skip
def _local(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import study
    from focusfl.deploy.local import local_app, local_study
    from focusfl.flower import events

    if options.what.is_dir():
        names = ("set", "algorithm", "clients", "deadline", "target", "secure")
        flags = [f"--{n}" for n in names if getattr(options, n) not in (None, [], False)]
        if flags:
            raise ValueError(
                f"{', '.join(flags)} {'are' if flags[1:] else 'is'} for studies; "
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
        limits = {"deadline": options.deadline, "target": options.target}
        settings = {name: value for name, value in limits.items() if value is not None}
        outcome = local_study(deployed, place, _watch, tls=options.tls, settings=settings)
    summary, files = _summary(outcome), _draw(place)
    if options.json:
        where = {"folder": str(place), "files": [str(file) for file in files]}
        print(json.dumps({**summary, **where}, indent=2))
    else:
        print(events.packed(_words(summary)))
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
    answer = {"folder": str(place), "files": [], "warnings": [why]}
    print(json.dumps(answer, indent=2) if options.json else why)
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


def _words(summary: Mapping[str, Any]) -> list[str]:
    """A summary, to be read: a number each, and how often each site was counted."""
    from focusfl.flower.events import short

    lists = ("participation", "counted", "warnings", "why")
    words = [f"{name} {short(v)}" for name, v in summary.items() if name not in lists]
    times = list(summary["counted"].items())
    shown = [f"{site} {n}" for site, n in times[:MAX_SITES]]
    left = [f"and {len(times) - MAX_SITES} more"] if len(times) > MAX_SITES else []
    return [*words, "rounds counted:", *shown, *left]


def _draw(place: Path) -> list[Path]:
    """Write the page and the figure of a deployment, as of a study; give all its files."""
    from focusfl.studies import store
    from focusfl.studies.report import output

    study = store.Study.load(place)
    return [place / store.CURVES, place / "model.npz", *output.save_report(study)]


@command(
    "deploy init", "write a Flower app, ready for several hosts",
    "focusfl deploy init hospitals",
    Option("folder", type=Path, help="to be made"),
)  # fmt: skip
def _init(options: argparse.Namespace) -> int:
    from focusfl.deploy import apps

    print_files(options, apps.init(options.folder))
    return 0


@command(
    "deploy certificates",
    "write certificates, keys and nginx's configuration, or renew the server's certificate",
    "focusfl deploy certificates keys --hosts fl.example.org --sites paris rome",
    Option("folder", type=Path, nargs="?", default=Path("keys")),
    Option("--hosts", nargs="+", default=[], help="names of the server"),
    Option("--sites", nargs="+", default=[], help="a name each"),
    Option("--renew", action="store_true", help="sign another certificate for the server"),
)  # fmt: skip
def _certificates(options: argparse.Namespace) -> int:
    need_flower()  # it brings what signs
    from focusfl.deploy import certificates
    from focusfl.flower.identity import expiries

    if options.renew:
        files = certificates.renew(options.folder, options.hosts)
    else:
        files = certificates.make(options.folder, options.hosts, options.sites)
    words = expiries(options.folder)
    if options.json:
        print(json.dumps({"files": [str(file) for file in files], "ending": words}))
    else:
        print("\n".join([*(f"written: {file}" for file in files), *words]))
    return 0


@command(
    "deploy keys", "write the key that the sites of a job with secure sums share",
    "focusfl deploy keys sums.key",
    Option("file", type=Path, help="to be written, and handed to all sites, never to the server"),
    Option("--rotate", action="store_true", help="put a new key before those of the file"),
)  # fmt: skip
def _key(options: argparse.Namespace) -> int:
    need_flower()  # it brings what seals
    from focusfl.flower.secure import Keys

    Keys.create(options.file, options.rotate)
    print_files(options, [options.file])
    return 0


@command(
    "deploy open", "write the model of a job with secure sums, by the key of its sites",
    "focusfl deploy open server/hospitals/server.db --key sums.key",
    Option("database", type=Path, help="server.db of the job; a copy will do"),
    Option("--key", type=Path, required=True, help="file that focusfl deploy keys has written"),
    Option("--out", type=Path, default=Path("model.safetensors"),
           help="file to be written (model.safetensors)"),
)  # fmt: skip
def _open(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.core.models import save_model
    from focusfl.flower.secure import Keys, open_model

    if not options.database.is_file():
        raise ValueError(f"{options.database} must be the database of a job; there is none.")
    if options.out.exists():
        raise ValueError(f"{options.out} is there already; give --out another name.")
    model, rounds = open_model(options.database, Keys.read(options.key))
    save_model(options.out, model)
    if options.json:
        print(json.dumps({"files": [str(options.out)], "rounds": rounds}))
    else:
        print(f"written: {options.out}, the model after {rounds} rounds")
    return 0


def _there(options: argparse.Namespace) -> Path:
    """The folder that is looked at."""
    if not options.folder.is_dir() and options.folder != RUNS:
        raise ValueError(f"{options.folder} must be a folder; there is none.")
    return options.folder


@command(
    "deploy stop", "stop what `deploy local` has started in a folder",
    "focusfl deploy stop runs/deploy-study", FOLDER,
)  # fmt: skip
def _stop(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import monitor, ownership

    places = [Path(place) for place in monitor.search(_there(options))]
    stopped = {str(place): ownership.stop(place) for place in places}
    stopped = {place: names for place, names in stopped.items() if names}
    if options.json:
        print(json.dumps(stopped, indent=2))
        return 0
    if not stopped:
        print(f"nothing runs of what was started in {options.folder}")
    for place, names in stopped.items():
        print(f"{place}: stopped {', '.join(names)}")
    return 0


@command(
    "deploy status", "say what runs of what `deploy local` has started",
    "focusfl deploy status runs", FOLDER,
)  # fmt: skip
def _status(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy import monitor
    from focusfl.deploy.watch import without_infinity
    from focusfl.flower.events import packed
    from focusfl.studies.report import terminal

    deployments = monitor.search(_there(options))
    if options.json:
        print(json.dumps(without_infinity(deployments), indent=2, allow_nan=False))
        return 0
    if not deployments:
        print(f"nothing was started in {options.folder}")
    for place, about in deployments.items():
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
    """Print who takes part, those in trouble first, and what is amiss."""
    from focusfl.flower.events import clock, packed, short
    from focusfl.flower.health import STATES
    from focusfl.studies.report import terminal

    sites = sorted(job["sites"].items(), key=lambda item: STATES.index(item[1]["state"]))
    counts = ("counted", "late", "unanswered", "refused")
    private = any(site["epsilon"] is not None for _, site in sites)
    titles = ["site", "state", "age in rounds", *counts, *["epsilon"] * private, "last error"]
    rows = []
    for name, site in sites[:MAX_SITES]:
        age = "–" if site["age"] is None else str(site["age"])
        row = [name, site["state"], age, *(str(site[count]) for count in counts)]
        if private:
            row.append("–" if site["epsilon"] is None else short(site["epsilon"]))
        rows.append([*row, f"{site['error']:.60}"])
    terminal.print_table("", titles, rows)
    state = job["state"]
    if state == "stopped":
        state = f"stopped after round {job['round']} of {job['rounds']}"
    words = [f"and {len(sites) - MAX_SITES} more;"] if len(sites) > MAX_SITES else []
    words += [
        f"{state},",
        f"generation {job['generation']},",
        f"heard {clock(time.time() - job['heard'])} ago,",
        ", ".join(f"{count / 1e6:.3g} MB {way}" for way, count in job["bytes"].items()),
        *(f"{name} {short(value)}" for name, value in job["metrics"].items()),
    ]
    print(packed(words))
    health = "healthy" if job["healthy"] else f"not healthy, as it stands: {' '.join(job['why'])}"
    print(packed(f"sites: {health}".split()))
    if job["worse"]:
        print(packed(f"learning: getting worse: {job['worse']}".split()))


@command(
    "deploy watch", "show how jobs are doing, on a page and for Prometheus",
    "focusfl deploy watch runs/deploy-study --port 8484", FOLDER,
    Option("--port", type=int, default=8484, help="of this machine alone (8484; 0: any)"),
)  # fmt: skip
def _serve(options: argparse.Namespace) -> int:
    need_flower()
    from focusfl.deploy.watch import Watch

    with Watch(_there(options), options.port) as server:
        answer = {"url": server.url, "folder": str(options.folder)}
        words = f"{options.folder} is shown at {server.url} until Ctrl-C"
        print(json.dumps(answer) if options.json else words, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
