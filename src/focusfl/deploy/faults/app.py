"""The apps of a study as `deploy local --chaos` and `--latency` have them."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid, ServerApp

from focusfl.core import GradFn, tree
from focusfl.core.tree import Tree
from focusfl.deploy import study
from focusfl.deploy.faults.chaos import parse, told_file
from focusfl.deploy.faults.delays import Delays
from focusfl.deploy.faults.lossy import Lossy
from focusfl.flower.client import Work, client_app, work_of
from focusfl.flower.identity import identify
from focusfl.flower.protocol.limits import norm
from focusfl.flower.protocol.messages import fields_of
from focusfl.flower.records import from_records

SPIKE = 1e16  # the norm of a gradient that is wrong


def study_server(folder: Path) -> ServerApp:
    """The study's own server app, on a lossy grid as its setting `chaos` says."""
    app, plain = ServerApp(), study.study_server(folder, ["chaos"])

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chaos = parse(str(context.run_config["chaos"]))
        plain(Lossy(grid, chaos), context)

    return app


def study_client(folder: Path) -> ClientApp:
    """The study's own client app, whose next gradient is wrong if it is told so, whose
    SuperNode dies in a stage of a secure sum, and whose replies take as long as the
    study's clock says, if it has one."""
    mine = study.read(folder / study.FILE)
    mods: list[Mod] = [_mortal, Delays(mine)] if mine.latency else [_mortal]

    def work(context: Context) -> Work:
        plain = work_of(mine.problem, context, mine.seed)
        told = told_file(identify(context).folder, "spike")
        return replace(plain, grad_fn=_spiked(plain.grad_fn, told))

    return client_app(work, mine.algorithm, secure=mine.secure, mods=mods)


def _mortal(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """End this app and its SuperNode, a process group, as a power cut would: once, if
    it is told so, with the reply of a stage on disk and not sent."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train":
        stage = fields_of(from_records(reply.content)).get("stage")
        told = told_file(identify(context).folder, str(stage))
        if told.exists():
            told.unlink()
            os.killpg(os.getpgrp(), signal.SIGKILL)
    return reply


def _spiked(grad_fn: GradFn, told: Path) -> GradFn:
    def gradient(x: Tree, batch: Any) -> Tree:
        right = grad_fn(x, batch)
        if not told.exists():
            return right
        told.unlink()
        return tree.scale(SPIKE / max(norm(right), 1e-300), right)

    return gradient
