"""The loop over chunks: run, keep, tell, until there are enough of them."""

from collections.abc import Callable, Iterator

from focusfl.engines.simulator.cache import ClientCache
from focusfl.engines.simulator.checkpoint import Checkpoint
from focusfl.engines.simulator.cohort import Program
from focusfl.engines.simulator.compiled import Log, State
from focusfl.engines.simulator.layout import Plan
from focusfl.engines.simulator.logs import fetch, last_of, told_of, whole_of
from focusfl.engines.stop import Progress


def run_chunks(
    run: Callable[[Program, State, Plan], tuple[State, Log]],
    coming: Iterator[tuple[Program, Plan]],
    rounds: int,
    state: State,
    first: Log,
    kept: Checkpoint,
    table: ClientCache | None,
    progress: Progress | None,
) -> tuple[State, Log]:
    """Run the chunks that are coming until there are enough; give the end and the log.

    One chunk may run on while the next is laid out.
    """
    logs, running = [first], []
    enough, done = state.met is not None and bool(state.met.all()), len(first.alive) - 1
    if progress and done:
        enough |= bool(progress(told_of(logs), last_of(first)))
    now = next(coming, None)
    while now and not enough and logs[-1].alive[-1].any():
        program, laid_out = now
        if table:
            state, laid_out = table.load(state, laid_out)
        state, log = run(program, state, laid_out)
        rows = min(len(laid_out.round), rounds - done)
        running.append((log, rows))
        done += rows
        kept.write()  # what was kept before this chunk, while it is running
        now = next(coming, None)
        if table and now:
            table.prefetch(now[1])
        due = now is not None and kept.due()
        while len(running) > (now is not None and not due):
            logs.append(fetch(*running.pop(0)))
            if progress:  # a stop that was asked for stays asked for
                enough |= bool(progress(told_of(logs), last_of(logs[-1])))
        if due:
            (table or kept).keep(state, whole_of(logs))
    logs += [fetch(*more) for more in running]  # where it was enough
    whole = whole_of(logs)
    if len(logs) > 1:
        (table or kept).keep(state, whole)
        kept.write()
    return state, whole
