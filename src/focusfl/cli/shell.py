"""`focusfl doctor` and `focusfl completion`: what a terminal needs to work well."""

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from focusfl import __version__
from focusfl.checks import unknown
from focusfl.extras import WHERE, install

FLOWER = ("flwr", "flower-superlink", "flower-supernode", "flower-superexec")

Section = dict[str, Any]  # by what was looked at: what was found, None if nothing


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands, by the function that adds any command."""
    command(
        "doctor", _doctor, "say what is installed, what is missing and what works",
        "focusfl doctor",
    )  # fmt: skip
    completion = command(
        "completion", _completion, "print a script that lets a shell complete commands",
        "source <(focusfl completion bash)",
    )  # fmt: skip
    completion.add_argument("shell", help="bash, zsh or fish")


def _doctor(options: argparse.Namespace) -> int:
    from focusfl.report import terminal

    found = {
        **_packages(),
        "machine": _attempt(_machine),
        "a run": _attempt(_run),
        "data": _data(),
        "commands": _commands(),
    }
    reasons = [f"{name} is missing" for name, v in found["needed"].items() if not v]
    reasons += [own["failed"] for own in found.values() if "failed" in own]
    extras = {name: own for name, own in found.items() if "[" in name}
    absent = [name for name, own in extras.items() if None in own.values()]
    without = f"; without {', '.join(absent)}, which are installed {WHERE}"
    verdict = "focusfl works" + without * bool(absent)
    if reasons:
        verdict = "focusfl does not work here: " + "; ".join(reasons)
    rows = []
    for section, own in found.items():
        extra = re.search(r"\[(.+)\]", section)
        no = f"missing: {install(extra[1])}" if extra else "missing"
        for what, value in own.items():
            rows.append((section, what, no if value is None else str(value)))
            section = ""  # is said once
    if options.json:
        whole = {"works": not reasons, "verdict": verdict, **found}
        print(json.dumps(whole, indent=2))
    else:
        terminal.print_table("", ("", "", "found"), rows)
        print(verdict)
    return 1 if reasons else 0


def _packages() -> dict[str, Section]:
    """Versions of what focusfl needs, and by extra of what it can use."""
    needed: Section = {"focusfl": __version__, "python": platform.python_version()}
    found = {"needed": needed}
    try:
        needs = metadata.requires("focusfl") or []
    except metadata.PackageNotFoundError:  # run from its folder, not installed
        needs = ["jax", "numpy"]
    for need in [*needs, "jaxlib"]:
        extra = re.search(r"extra == ['\"]([\w-]+)", need)
        own = found.setdefault(f"focusfl[{extra[1]}]", {}) if extra else needed
        name = re.split(r"[^\w.-]", need)[0]
        try:
            own[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            own[name] = None
    return found


def _attempt(look: Callable[[], Section]) -> Section:
    """What is found, or what went wrong: it is a doctor's trade."""
    try:
        return look()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}


def _machine() -> Section:
    import jax

    from focusfl.engines import memory

    kinds = [f"{each.platform}, {each.device_kind}" for each in jax.devices()]
    devices = {f"device {k}": kind for k, kind in enumerate(kinds)}
    gib = f"{memory.available() / 2**30:.3g} GiB"
    return {"cores": os.cpu_count(), **devices, "memory": gib}


def _run() -> Section:
    """A small run that must end at the optimum, but for rounding."""
    import focusfl as ff
    from focusfl.experiment.verdict import EXACT

    start = time.perf_counter()
    problem = ff.problems.random_quadratic(num_clients=4, dim=5, L=1.1)
    law = ff.participation.Uniform(m=2)
    result = ff.simulate(ff.Focus(), problem, law, rounds=500, lr=0.2)
    error = float(result.metrics["distance"][-1])
    if not error <= EXACT:
        raise ArithmeticError(f"a run ended {error:.0e} away from the optimum")
    return {"error": error, "seconds": round(time.perf_counter() - start, 2)}


def data_sets() -> dict[str, list[list[str]]]:
    """By data set, the choices of files that it may come in."""
    from focusfl.data import cifar, hospitals, tables

    heart = [f"fed_heart_disease/processed.{name}.data" for name in hospitals.CENTERS]
    brca = [f"fed_tcga_brca/{name}.csv" for name in ("brca", "train_test_split")]
    return {
        "heart_disease": [heart],
        "tcga_brca": [brca],
        **{name: [[tables.FILE], [own.file]] for name, own in tables.SETS.items()},
        "cifar10": [cifar.PARTS, [cifar.BINARY], [cifar.PYTHON]],
    }


def _data() -> Section:
    from focusfl.data import places

    found: Section = {
        "FOCUSFL_DATA": os.environ.get("FOCUSFL_DATA") or "not set",
        "cache": str(places.cache_folder()),
    }
    for name, choices in data_sets().items():
        try:
            found[name] = str(places.find(name, choices, "", None)[0].parent)
        except ValueError:
            found[name] = None
    return found


def _commands() -> Section:
    """Flower's commands, as `focusfl deploy` will find them."""
    from focusfl.deploy.processes import environment

    path = environment(Path())["PATH"]
    return {name: shutil.which(name, path=path) for name in FLOWER}


class Value(NamedTuple):
    """What an option or a command takes: some of these words, or a file."""

    words: tuple[str, ...] = ()
    file: bool = False


class Command(NamedTuple):
    """A command, as a shell has to know it."""

    path: str  # "deploy local"
    commands: dict[str, str]  # those below it, and what they do
    options: dict[str, str]
    values: dict[str, Value]  # of the options that take one
    takes: Value  # without an option


def _completion(options: argparse.Namespace) -> int:
    from focusfl.cli import parser

    if options.shell not in SCRIPTS:
        raise ValueError(unknown("shell", options.shell, SCRIPTS))
    script = SCRIPTS[options.shell](list(commands(parser())))
    print(json.dumps({"script": script}) if options.json else script)
    return 0


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Command]:
    """Walk through a parser: all commands, from the top."""
    found = Command(path, {}, {}, {}, Value())
    deeper: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action._choices_actions:
                found.commands[each.dest] = each.help or ""
            deeper += action.choices.items()
        elif not action.option_strings:
            (words, file), more = found.takes, _value(action)
            found = found._replace(takes=Value(words + more.words, file or more.file))
        for option in action.option_strings:
            found.options[option] = action.help or ""
            if action.nargs != 0:
                found.values[option] = _value(action)
    yield found
    for name, below in deeper:
        yield from commands(below, f"{path} {name}".strip())


def _value(action: argparse.Action) -> Value:
    """What an argument takes: its choices, or the words that its help begins with."""
    listed = re.match(r"([\w-]+(?:, [\w-]+)* or [\w-]+)(?: \(|$)", action.help or "")
    named = re.split(", | or ", listed[1]) if listed and not action.metavar else ()
    return Value(tuple(map(str, action.choices or named)), action.type is Path)


BASH = """\
# For bash: source <(focusfl completion bash)
_focusfl() {{
    local place= offer= file= i
    local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
    [[ "$cur" == "=" ]] && cur=  # --out=here comes as three words
    [[ "$before" == "=" ]] && before=${{COMP_WORDS[COMP_CWORD - 2]}}
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$place ${{COMP_WORDS[i]}}" in
            {paths}) place="$place ${{COMP_WORDS[i]}}" ;;
        esac
    done
    [[ "$cur" == -* ]] && before=-
    case "$place:$before" in
        {cases}
    esac
    COMPREPLY=($(compgen -W "$offer" -- "$cur"))
    if [[ "$file" ]]; then
        local IFS=$'\\n'
        COMPREPLY+=($(compgen -f -- "$cur"))
        compopt -o filenames 2> /dev/null
    fi
}}
complete -F _focusfl focusfl"""
ZSH = """\
# For zsh: source <(focusfl completion zsh)
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
autoload -Uz bashcompinit && bashcompinit
"""
FISH = """\
# For fish: focusfl completion fish | source
function __focusfl_at
    set -l place
    for word in (commandline -opc)
        set -l next (string trim "$place $word")
        contains -- $next {paths}; and set place $next
    end
    test "$place" = "$argv"
end
complete -c focusfl -f
{lines}"""


def _bash(known: list[Command], before: str = "") -> str:
    cases = []
    for each in known:
        place = " " * bool(each.path) + each.path
        here = Value((*each.commands, *each.takes.words), each.takes.file)
        table = each.values | {"-": Value(tuple(each.options)), "": here}
        for option, (words, file) in table.items():
            pattern = shlex.quote(f"{place}:{option}") + "*" * (not option)
            offer = f" offer={shlex.quote(' '.join(words))}" * bool(words)
            cases.append(f"{pattern}){offer}{' file=1' * file} ;;")
    paths = " | ".join(shlex.quote(f" {each.path}") for each in known if each.path)
    return before + BASH.format(paths=paths, cases="\n        ".join(cases))


def _fish(known: list[Command]) -> str:
    def quote(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def takes(value: Value) -> str:
        words = f" -a {quote(' '.join(value.words))}" if value.words else ""
        return words + (" -F" if value.file else " -f")

    lines = []
    for each in known:
        start = f"complete -c focusfl -n {quote(f'__focusfl_at {each.path}')}"
        for name, help in each.commands.items():
            lines.append(f"{start} -a {name} -d {quote(help)}")
        for option, help in each.options.items():
            kind = "-l" if option.startswith("--") else "-s"
            value = " -r" + takes(each.values[option]) if option in each.values else ""
            name = option.lstrip("-")
            lines.append(f"{start} {kind} {name}{value} -d {quote(help)}")
        lines.append(start + takes(each.takes))
    paths = " ".join(quote(each.path) for each in known if each.path)
    return FISH.format(paths=paths, lines="\n".join(lines))


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {
    "bash": _bash,
    "zsh": partial(_bash, before=ZSH),
    "fish": _fish,
}
