"""The client app: any gradient, as a participant of any algorithm."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from focusfl.core import Algorithm, Batch, GradFn
from focusfl.core.tree import Tree
from focusfl.core.work import Work
from focusfl.flower import evaluation
from focusfl.flower.identity import Identity, identify
from focusfl.flower.protocol import Site
from focusfl.flower.records import from_records, to_records
from focusfl.flower.secure import Keys, Secure, SecureSite

if TYPE_CHECKING:
    from focusfl.privacy.account import Terms
    from focusfl.problems import Objective, Problem


CACHE = "focusfl.states"  # Flower's record of a site's cached states


def client_app(
    work: "GradFn | Problem | Work | Callable[[Context], Any]",
    algorithm: Algorithm,
    *,
    job: str | None = None,
    seed: int = 0,
    secure: Secure | None = None,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Make a Flower client app.

    A SuperNode with `leave=true` in its configuration takes back all it contributed.

    Args:
        work: what the site computes. A function (model, batch) -> gradient; a `Work`, as
            `from_torch(..., client=...)` gives; a Problem, of which the site takes the part
            that its partition-id names, and of a `Private` one keeps an account, with
            discrete noise that it alone knows; or a function of Flower's context that gives
            one of these, and is called when there is work to do.
        algorithm: the one of the server.
        job: name of the training; None: `job` in the app's configuration.
        seed: of the batches, where `work` is a problem that draws some.
        secure: the server's, where pushes are summed in secret. Then the site does not
            evaluate, and its SuperNode needs `sums-key`, the file of the sites' key.
        mods: Flower's, around all that the site does.

    Returns:
        An app that answers requests, evaluates models, and says which site it is.
    """
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        request, name = from_records(message.content), _job(job, context)
        if context.node_config.get("leave"):
            reply = _site(algorithm, name, secure, context).leave(request)
            return Message(to_records(reply), reply_to=message)
        site_work = _work_of(work, context, seed)
        site = _site(algorithm, name, secure, context, site_work.private)
        reply = site.answer(request, site_work.grad_fn, site_work.batch_of)
        summary = site.account.summary if site.account else {}
        return Message(to_records(reply, summary), reply_to=message)

    @app.query()
    def hello(message: Message, context: Context) -> Message:
        who = ConfigRecord({"site": identify(context).site})
        return Message(RecordDict({"hello": who}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if secure:
            raise ValueError("a site of secure sums does not evaluate.")
        site_work = _work_of(work, context, seed)
        results = evaluation.answer(
            from_records(message.content), _job(job, context), site_work.evaluate,
            site_work.whole,
        )  # fmt: skip
        return Message(results, reply_to=message)

    return app


def _site(
    algorithm: Algorithm, job: str, secure: Secure | None, context: Context,
    private: "Terms | None" = None,
) -> Site:  # fmt: skip
    who = identify(context)
    options: dict[str, Any] = {"private": private, "folder": who.folder, "limit": who.limit}
    # Flower keeps this record between messages, as long as the SuperNode runs.
    cache: Any = context.state.setdefault(CACHE, ConfigRecord())
    if secure is not None:
        if who.key is None:
            raise ValueError(
                f"{who.site} needs the key of secure sums: --node-config 'sums-key=\"FILE\"', "
                "a file that focusfl deploy keys writes and all sites share."
            )
        options |= {"secure": secure, "keys": Keys.read(who.key)}
        return SecureSite(algorithm, job, who.site, cache, **options)
    return Site(algorithm, job, who.site, cache, **options)


def _job(job: str | None, context: Context) -> str:
    name = job or str(context.run_config.get("job", ""))
    if not name:
        raise ValueError(
            'the job must have a name: job = "NAME" in [tool.flwr.app.config], or '
            'client_app(job="NAME"); got none.'
        )
    return name


def _work_of(work: Any, context: Context, seed: int) -> Work:
    """Make a site's `Work` of whatever `client_app` takes."""
    who = identify(context)
    if callable(work) and len(inspect.signature(work).parameters) == 1:
        work = work(context)
    if not isinstance(work, Work):
        work = Work(work) if callable(work) else _of_problem(work, who, seed)
    if who.limit and not work.private:
        raise ValueError(
            f"{who.site} may reveal no more than epsilon {who.limit.epsilon:g}, and the work of "
            "this job is not private."
        )
    return work


def _of_problem(problem: "Problem", who: Identity, seed: int) -> Work:
    """Take one client's part of a problem, with the batches that `ff.simulate` draws."""
    from focusfl.core import tree
    from focusfl.privacy.account import Terms
    from focusfl.privacy.mechanism import private_gradient
    from focusfl.privacy.noise import Private
    from focusfl.simulation.client_round import batch_stream, batches_of, grad_fn

    i = who.number
    if i is None or not 0 <= i < problem.num_clients:
        raise ValueError(
            f"{who.site} must say which of {problem.num_clients} clients it is: "
            f"--node-config 'partition-id=NUMBER'; got {i}."
        )
    objective, data = problem.objective, tree.map(lambda leaf: leaf[i], problem.data)
    if isinstance(problem, Private):
        # The seed draws batches; it draws no noise of a private site.
        exact = problem.exact.objective
        batch_of = batches_of(exact, batch_stream(exact, seed), i)
        noisy = private_gradient(problem.objective, data)
        return Work(noisy, batch_of=batch_of, private=Terms.of(problem))
    return Work(
        grad_fn(objective, data),
        batch_of=batches_of(objective, batch_stream(objective, seed), i),
        gradient=_whole(objective, data),
    )


def _whole(objective: "Objective", data: Tree) -> Callable[[Tree], Tree] | None:
    """Make the gradient of all data, without noise; None where it is not known how."""
    from focusfl.core import tree
    from focusfl.problems.loss import MeanLoss
    from focusfl.problems.noise import NoisyObjective

    if isinstance(objective, NoisyObjective):
        return _whole(objective.exact, data)
    if not objective.stochastic:
        return lambda x: objective.grad(x, data, None)
    if not isinstance(objective, MeanLoss):
        return None
    # The gradients of an epoch average to that of all samples.
    plain = replace(objective, stream="fixed_order", augment=None, draws=False)
    batches = -(-int(data["length"]) // plain.batch_size)

    def gradient(x: Tree) -> Tree:
        parts = (plain.grad(x, data, Batch(None, number)) for number in range(batches))
        return tree.scale(1 / batches, reduce(tree.add, parts))

    return gradient
