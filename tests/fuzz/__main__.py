"""Fuzz the parsers: python tests/fuzz --target receive --seconds 60.

With atheris (pip install atheris) inputs follow the branches that earlier ones have taken;
without it they are random changes of the seeds. What breaks a target's law is written to
tests/fuzz/corpus/TARGET, where tests/fuzz/test_fuzz.py tries it from then on.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["FOCUSFL_OFFLINE"] = "1"

try:
    import atheris
except ImportError:
    atheris = None

if atheris:
    with atheris.instrument_imports(include=["focusfl"]):
        from fuzz import laws
        from fuzz.targets import TARGETS, scratch
else:
    from fuzz import laws
    from fuzz.targets import TARGETS, scratch


class Session:
    """Attempts at one target, and what came of them."""

    def __init__(self, name: str, seconds: float, stop: bool):
        self.name, self.target = name, TARGETS[name]
        self.began, self.seconds, self.stop = time.process_time(), seconds, stop
        self.tries = self.read = 0
        self.crashes: dict[str, str] = {}  # files by what happened

    @property
    def over(self) -> bool:
        return time.process_time() - self.began >= self.seconds

    def attempt(self, content: bytes) -> None:
        """Try one input; write down what breaks the law, once for each place it does."""
        self.tries += 1
        try:
            self.read += laws.attempt(self.target, content, laws.SECONDS)
        except Exception as error:
            if (what := _place(error)) not in self.crashes:
                self.crashes[what] = self._keep(content)
                print(f"{self.name}: {what}: {self.crashes[what]}", flush=True)
                if self.stop:
                    raise

    def _keep(self, content: bytes) -> str:
        folder = laws.CORPUS / self.name
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / hashlib.sha256(content).hexdigest()[:12]
        file.write_bytes(content)
        return str(file)

    def end(self) -> int:
        """Say what was done, as one line of JSON; give the exit status."""
        spent = round(time.process_time() - self.began, 1)
        line = {"target": self.name, "executions": self.tries, "seconds": spent}
        print(json.dumps({**line, "read": self.read, "crashes": [*self.crashes]}), flush=True)
        shutil.rmtree(scratch(), ignore_errors=True)  # nothing is done at the end of a fork
        return 1 if self.crashes else 0


def _place(error: BaseException) -> str:
    """Where an error was raised, and by which line of the library."""
    trace, at = error.__traceback__, ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if "focusfl" in file and "site-packages" not in file:
            at = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {at}"[:200] + f": {error!s:.80}" * (not at)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append", help="all by default")
    parser.add_argument("--seconds", type=float, default=60, help="of the processor, for each")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--corpus", type=Path, help="a folder for inputs that reach new branches")
    parser.add_argument("--stop", action="store_true", help="at the first that breaks a law")
    options = parser.parse_args()
    names = options.target or [*TARGETS]
    print(f"seed {options.seed}, {'atheris' if atheris else 'without atheris'}", flush=True)
    failed = False
    for name in names:
        if child := os.fork():  # libFuzzer ends its process; what was imported need not be again
            failed |= os.waitpid(child, 0)[1] != 0
        else:
            os._exit(_fuzz(Session(name, options.seconds, options.stop), options))
    return int(failed)


def _fuzz(session: Session, options: argparse.Namespace) -> int:
    """Try seeds, the corpus and changes of both for as long as asked."""
    seeds = [*session.target.seeds()]
    for content in seeds:  # without a limit, as this imports what is imported late
        with contextlib.suppress(Exception):
            laws.attempt(session.target, content)
    seeds += laws.corpus_of(session.name).values()
    for content in seeds:
        session.attempt(content)
    if atheris:
        _follow_branches(session, seeds, options)
    while not session.over:
        number = options.seed + session.tries
        first = seeds[number % len(seeds)]
        session.attempt(laws.mutate(first, seeds, session.target.words, number))
    return session.end()


def _follow_branches(session: Session, seeds: list[bytes], options: argparse.Namespace) -> None:
    """Let libFuzzer choose the inputs; it ends this process."""
    folder = (options.corpus or scratch()) / session.name
    folder.mkdir(parents=True, exist_ok=True)
    for content in seeds:
        (folder / hashlib.sha256(content).hexdigest()[:12]).write_bytes(content)

    def test(content: bytes) -> None:
        if session.over:
            os._exit(session.end())
        session.attempt(content)

    def mutate(content: bytes, size: int, seed: int) -> bytes:
        if seed % 2:
            return atheris.Mutate(content, size)
        return laws.mutate(content, seeds, session.target.words, seed)[:size]

    arguments = [
        sys.argv[0], str(folder), f"-max_len={laws.MAX_LENGTH}", "-rss_limit_mb=3072",
        "-timeout=120", f"-seed={options.seed}", "-verbosity=0", "-print_final_stats=0",
        f"-artifact_prefix={folder}/",
    ]  # fmt: skip
    atheris.Setup(arguments, test, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
