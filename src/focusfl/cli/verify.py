"""`focusfl verify`: whether the files in a folder are as they were written."""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from focusfl.core.validation import printable

EXIT_DAMAGED = 1


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command, by the function that adds any command."""
    verify = command(
        "verify", _verify,
        "say which files of a folder are damaged, by their checksums",
        "focusfl verify runs/demo",
    )  # fmt: skip
    verify.add_argument(
        "folder", type=Path, metavar="DIR",
        help="of a study, a checkpoint, the suite, a deployment's server or site",
    )  # fmt: skip


def _verify(options: argparse.Namespace) -> int:
    from focusfl.studies.verify import verify

    found = verify(options.folder)
    count = Counter(one.state for one in found)
    told = {state: count[state] for state in ("ok", "damaged", "unknown")}
    if options.json:
        print(json.dumps({**told, "files": [one._asdict() for one in found]}, indent=2))
    else:
        for one in found:
            words = one.file + f": {one.why}" * bool(one.why)
            print(f"{one.state:8}{printable(words)}")
        print(", ".join(f"{many} {state}" for state, many in told.items()))
    return EXIT_DAMAGED if count["damaged"] else 0
