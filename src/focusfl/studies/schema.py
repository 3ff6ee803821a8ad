"""What a study may say: pydantic models, made from the signatures of what it names."""

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from focusfl.algorithms import ALGORITHMS
from focusfl.compression import COMPRESSORS, Compressor
from focusfl.core import Algorithm
from focusfl.core.schedules import SCHEDULES
from focusfl.core.validation import unknown
from focusfl.participation import PARTICIPATION, LatencyModel, Participation, by_rarity
from focusfl.privacy import Private
from focusfl.problems import PROBLEMS
from focusfl.simulation.spec import ClientState
from focusfl.studies.toml import Keys

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Few = Annotated[int, Field(ge=1, le=100_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
StepSizes = Positive | list[Positive] | Literal["auto"]
Counts = Count | list[Count]
Models = Literal["last", "all", "none"]

WORDS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text",
    list: "a list", dict: "a table",
}  # fmt: skip
TABLES = (Algorithm, Compressor, Participation, LatencyModel)  # each is said as a table
RARITY = Annotated[dict[str, Any], Field(description="chances that follow how unusual data is")]
YOUR_OWN = {  # for editors: what it takes is known to its module alone
    "type": "object",
    "properties": {"kind": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
    "required": ["kind"],
}


class Strict(BaseModel):
    """No unknown key, no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def option(default: Any, description: str) -> Any:
    return Field(default=default, description=description)


class Stop(Strict):
    """When a run has done enough, before its rounds are over."""

    tolerance: Positive | None = option(None, "relative error to reach")
    accuracy: Positive | None = option(None, "accuracy to reach, at most 1")
    below: dict[str, Any] = option({}, "metrics, and what each is to fall to")
    above: dict[str, Any] = option({}, "metrics, and what each is to rise to")
    seconds: Positive | None = option(None, "time that runs side by side may take")
    vectors: Positive | None = option(None, "vectors of the model's size, both ways")
    bytes_up: Positive | None = option(None, "bytes that clients send, packed")


class SecureSums(Strict):
    """How many pushes a sum has in a deployment whose server reads none."""

    minimum: Count = option(3, "pushes in a sum, at least")


class Settings(Strict):
    """Algorithms x participation models x step sizes x seeds on one problem."""

    name: Annotated[str, Field(min_length=1)] = option("study", "names the folder")
    rounds: Count
    lr: StepSizes = Field(description="step size; several are a grid")
    local_steps: Counts = option(1, "gradients per participant and round")
    seed: Seed | None = option(None, "of participation and batches")
    seeds: Few | list[Seed] | None = option(None, "how many, from 0, or which")
    eval_every: Count = option(1, "rounds from one evaluation to the next")
    per_client: bool = option(False, "evaluate on every client's own data, too")
    on_empty: Literal["skip", "step"] = option("skip", "what a round of nobody does")
    client_state: ClientState = option("auto", "where clients' memory is")
    devices: Count | None = option(None, "how many to spread clients over")
    models: Models = option("last", "which models are saved: the last, or of all rounds")
    checkpoint_every: Positive | None = option(
        None, "seconds between checkpoints, which runs that were killed go on from"
    )
    schedule: dict[str, Any] | None = option(None, "how steps follow the round")
    stop: Stop = Field(default_factory=Stop)
    latency: dict[str, Any] | None = option(None, "how long everybody takes")
    privacy: dict[str, Any] | None = option(None, "what gradients may give away")
    compression: dict[str, Any] | None = option(None, "how clients' messages are sent")
    secure: dict[str, Any] | None = option(None, "sums alone are learned, deployed")
    problem: dict[str, Any]
    participation: dict[str, dict[str, Any]] = Field(min_length=1)
    algorithms: dict[str, dict[str, Any]] = Field(min_length=1)


class ConfigError(ValueError):
    """What is wrong with a study, and under which keys."""

    def __init__(self, path: Keys, words: str):
        super().__init__(words)
        self.path, self.words = path, words


@contextmanager
def blame(path: Keys, words: str = "") -> Iterator[None]:
    """Turn a ValueError into a ConfigError about these keys, with words before its own."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(path, f"{words}{error}") from None


def validate(model: type[BaseModel], table: Mapping[str, Any], path: Keys) -> Any:
    """Check a table against a model; raise ConfigError for the first thing amiss."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # An unknown key first: a misspelled one is missing under its right name, too.
        first = min(errors, key=lambda each: each["type"] != "extra_forbidden")
        raise _error(model, first, path) from None


def _error(model: type[BaseModel], error: Any, path: Keys) -> ConfigError:
    where = f"[{'.'.join(path)}]" if path else "the study"
    key, *inner = error["loc"]
    fields = model.model_fields
    if error["type"] == "extra_forbidden" and not inner:
        return ConfigError((*path, key), unknown(f"key in {where}", key, fields))
    if error["type"] == "missing":
        return ConfigError(path, f"{where} needs {key}.")
    annotation = fields[key].annotation
    if inner and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        deeper = {**error, "loc": tuple(inner)}
        return _error(annotation, deeper, (*path, key))
    full, got = (*path, key), error["input"]
    dotted = ".".join(full)
    if error["type"] == "too_short":
        return ConfigError(full, f"[{dotted}] must hold at least one table; it is empty.")
    if dict in {get_origin(part) or part for part in _members(annotation)}:
        full = (*full, *map(str, inner))
        return ConfigError(full, f"[{'.'.join(full)}] must be a table; got {got!r}.")
    return ConfigError(full, f"{dotted} must be {described(fields[key])}; got {got!r}.")


def described(field: Any) -> str:
    """The words for what a field takes."""
    return " or ".join(dict.fromkeys(_words(field.annotation, field.metadata)))


def _words(kind: Any, metadata: Any = ()) -> list[str]:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        metadata = [m for f in more for m in getattr(f, "metadata", [f])]
        return _words(inner, metadata)
    if len(_members(kind)) > 1:
        parts = [part for part in _members(kind) if part is not NoneType]
        return [word for part in parts for word in _words(part)]
    if get_origin(kind) is Literal:
        return [" or ".join(f'"{value}"' for value in get_args(kind))]
    if get_origin(kind) is list:
        return [f"a list of such {'numbers' if get_args(kind) else 'values'}"]
    word = WORDS.get(get_origin(kind) or kind, "a value")
    for bound in metadata:
        if getattr(bound, "ge", None) is not None:
            word += f" of at least {bound.ge}"
        if getattr(bound, "le", None) is not None:
            word += f" and {_most(bound.le)}"
        if getattr(bound, "gt", None) is not None:
            word = "positive and finite"
    return [word]


def _most(number: int) -> str:
    """The largest of whole numbers, in few digits."""
    bits = number.bit_length()
    long = bits > 30 and number == 2**bits - 1
    return f"below 2^{bits}" if long else f"at most {number:,}"


def _members(annotation: Any) -> tuple[Any, ...]:
    """The parts of a union; of anything else, that alone."""
    union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if union else (annotation,)


class Section(NamedTuple):
    """What a section that names a kind may say: what its kind is made with, and more."""

    registry: Mapping[str, Callable]  # of kinds
    more: Mapping[str, Any] = {}  # fields beside the parameters of a kind
    without: tuple[str, ...] = ()  # parameters that it cannot say
    optional: tuple[str, ...] = ()  # parameters that it need not say

    def model(self, kind: str, make: Callable) -> type[Strict]:
        """The pydantic model of a section of this kind."""
        fields: dict[str, Any] = {"kind": (Literal[kind], kind), **self.more}
        for p in parameters(make).values():
            if p.name in self.without:
                continue
            needed = p.default is p.empty and p.name not in self.optional
            default = ... if needed else None if p.default is p.empty else p.default
            if p.annotation in TABLES:
                default = None
            allowed = _allowed(p.annotation)
            if default is None and allowed is not Any:
                allowed = allowed | None
            fields[p.name] = (allowed, default)
        about = (inspect.getdoc(make) or "").split("\n")[0]
        return create_model(kind, __base__=Strict, __doc__=about, **fields)


PROBLEM = Section(PROBLEMS)
SCENARIO = Section(
    PARTICIPATION,
    {"lr": (StepSizes | None, None), "by_rarity": (RARITY | None, None)},
    optional=("p", "w", "latency"),
)
ALGORITHM = Section(
    ALGORITHMS,
    {
        "lr": (StepSizes | None, None),
        "local_steps": (Counts | None, None),
        "schedule": (dict[str, Any] | None, None),
        "noise": (Annotated[float, Field(ge=0, allow_inf_nan=False)], 0.0),
    },
)
COMPRESSION = Section(
    COMPRESSORS,
    {"algorithms": (list[str] | None, option(None, "those that send by it; all if not said"))},
)
SCHEDULE = Section(SCHEDULES, without=("lr",), optional=("rounds",))
# What algorithms and participation models may be made of, each written as a table.
PARTS: dict[Any, Section] = {
    Algorithm: Section(ALGORITHMS), Compressor: Section(COMPRESSORS),
    Participation: Section(PARTICIPATION),
}  # fmt: skip


def privacy() -> type[Strict]:
    """The pydantic model of [privacy]."""
    return Section({}, without=("exact",)).model("privacy", Private)


def chances_by_rarity() -> type[Strict]:
    """The pydantic model of a table by_rarity."""
    return Section({}, without=("scores",)).model("by_rarity", by_rarity)


def parameters(make: Callable) -> dict[str, inspect.Parameter]:
    """What can be said by name; not *args and **kwargs."""
    rest = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    everything = inspect.signature(make).parameters
    return {name: p for name, p in everything.items() if p.kind not in rest}


def _allowed(annotation: Any) -> Any:
    """What TOML can say for a parameter."""
    if annotation in (Any, inspect.Parameter.empty):
        return Any
    kinds: list[Any] = []
    for part in _members(annotation):
        plain = part if part in (int, float, bool, str, list, dict, NoneType) else list
        kinds.append(str if part is Path else dict if part in TABLES else plain)
    if float in kinds:
        kinds = [kind for kind in kinds if kind is not int]
    return reduce(operator.or_, kinds)


def json_schema() -> dict[str, Any]:
    """The schema of a study, for editors."""
    whole = Settings.model_json_schema()
    properties, defs = whole["properties"], whole.setdefault("$defs", {})

    def ref(name: str, model: type[BaseModel]) -> dict[str, str]:
        definition = model.model_json_schema()
        defs.update(definition.pop("$defs", {}))
        defs[name] = definition
        return {"$ref": f"#/$defs/{name}"}

    def refs(name: str, section: Section) -> dict[str, dict[str, str]]:
        kinds = section.registry.items()
        return {kind: ref(f"{name}.{kind}", section.model(kind, make)) for kind, make in kinds}

    for name, section in (
        ("problem", PROBLEM),
        ("schedule", SCHEDULE),
        ("compression", COMPRESSION),
    ):
        properties[name] = {"anyOf": [*refs(name, section).values(), YOUR_OWN]}
    for name, model in (("privacy", privacy()), ("secure", SecureSums)):
        properties[name] = ref(f"study.{name}", model)
    for name, section in (("participation", SCENARIO), ("algorithms", ALGORITHM)):
        kinds = refs(name, section)
        properties[name] = {
            "type": "object",
            "minProperties": 1,
            "properties": kinds,
            "additionalProperties": {"anyOf": [*kinds.values(), YOUR_OWN]},
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}
