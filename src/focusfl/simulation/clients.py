"""Where clients' memory is during a run: two stores behind one interface.

On one device or sharded over several (`OnDevice`), or off it and brought there chunk by
chunk (`cache.ClientCache`, in the memory of the host or on disk).
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax

from focusfl.core.tree import Tree
from focusfl.simulation.cache import ClientCache
from focusfl.simulation.checkpoint import CheckpointFile, Facts
from focusfl.simulation.compiled import Log, State
from focusfl.simulation.devices import Devices
from focusfl.simulation.layout import Plan
from focusfl.simulation.spec import ClientState, Options
from focusfl.simulation.start import Start, begin_on_device, to_model_coordinates


@runtime_checkable
class ClientStore(Protocol):
    """What the driver asks of clients' memory. Use it as a context."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: Any) -> None: ...
    def begin(self, start: Start, key: Any, turns: int) -> tuple[State, Log]:
        """Give the state before round 0.

        `turns` bounds how many participants there will be, over all rounds.
        """

    def like(self, state: State, plan: Plan) -> tuple[State, Plan]:
        """What a chunk is compiled for, in shape."""

    def restore(self, state: State, log: Log, facts: Callable[[], Facts]) -> tuple[State, Log]:
        """Go on from the checkpoint, if there is one."""

    def load(self, state: State, plan: Plan) -> tuple[State, Plan]:
        """Have the memory of a chunk's participants on the device."""

    def prefetch(self, plan: Plan) -> None:
        """Get the memory of the chunk after this one ready."""

    def keep(self, state: State, log: Log) -> None:
        """Make all that was done so far part of the checkpoint, if there is one."""

    def export(self, start: Start, clients: Any) -> Tree:
        """Everybody's memory after the last round, in the coordinates of the model."""


class OnDevice:
    """All clients' memory on the device, or sharded over several."""

    def __init__(self, devices: Devices, kept: CheckpointFile):
        self._devices, self._kept = devices, kept
        self.restore, self.keep = kept.restore, kept.keep

    def __enter__(self) -> "OnDevice":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def begin(self, start: Start, key: Any, turns: int) -> tuple[State, Log]:
        del turns  # there is room for everybody
        return begin_on_device(*start, key)

    def like(self, state: State, plan: Plan) -> tuple[State, Plan]:
        return state, plan

    def load(self, state: State, plan: Plan) -> tuple[State, Plan]:
        return state, plan

    def prefetch(self, plan: Plan) -> None:
        pass

    def export(self, start: Start, clients: Any) -> Tree:
        clients = to_model_coordinates(start.static.objective, clients, start.data)
        return jax.tree.map(self._devices.fetch, clients)


def store_for(
    where: ClientState, options: Options, devices: Devices, kept: CheckpointFile
) -> ClientStore:
    """Make the store for clients' memory that is to be there."""
    if where == "device":
        return OnDevice(devices, kept)
    return ClientCache(where == "disk", options.state_folder, kept)
