"""The schema of a study, for editors."""

from typing import Any

from pydantic import BaseModel

from focusfl.algorithms import ALGORITHMS
from focusfl.compression import COMPRESSORS
from focusfl.core.schedules import SCHEDULES
from focusfl.participation import PARTICIPATION
from focusfl.problems import PROBLEMS
from focusfl.studies.schema import (
    SecureSums,
    Settings,
    algorithm,
    arguments,
    compressor,
    privacy,
    scenario,
    schedule,
)

YOUR_OWN = {  # for editors: what it takes is known to its module alone
    "type": "object",
    "properties": {"kind": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
    "required": ["kind"],
}


def json_schema() -> dict[str, Any]:
    """The schema of a study, for editors."""
    schema = Settings.model_json_schema()
    defs = schema.setdefault("$defs", {})

    def named(section: str, models: list[type[BaseModel]]) -> list[dict[str, str]]:
        for model in models:
            own = model.model_json_schema()
            defs.update(own.pop("$defs", {}))
            defs[f"{section}.{model.__name__}"] = own
        return [{"$ref": f"#/$defs/{section}.{m.__name__}"} for m in models]

    problems = named("problem", [arguments(*one) for one in PROBLEMS.items()])
    scenarios = named("participation", [scenario(*one) for one in PARTICIPATION.items()])
    players = named("algorithms", [algorithm(*one) for one in ALGORITHMS.items()])
    kinds = named("schedule", [schedule(*one) for one in SCHEDULES.items()])
    schema["properties"]["problem"] = {"anyOf": [*problems, YOUR_OWN]}
    compressors = named("compressor", [compressor(*one) for one in COMPRESSORS.items()])
    schema["properties"]["compression"] = {"anyOf": [*compressors, YOUR_OWN]}
    schema["properties"]["privacy"] = named("study", [privacy()])[0]
    schema["properties"]["secure"] = named("study", [SecureSums])[0]
    schema["properties"]["schedule"] = {"anyOf": [*kinds, YOUR_OWN]}
    for section, refs in (("participation", scenarios), ("algorithms", players)):
        schema["properties"][section] = {
            "type": "object",
            "minProperties": 1,
            "properties": {ref["$ref"].rsplit(".", 1)[1]: ref for ref in refs},
            "additionalProperties": {"anyOf": [*refs, YOUR_OWN]},
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
