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
    properties, defs = schema["properties"], schema.setdefault("$defs", {})

    def refs(section: str, models: list[type[BaseModel]]) -> list[dict[str, str]]:
        for model in models:
            definition = model.model_json_schema()
            defs.update(definition.pop("$defs", {}))
            defs[f"{section}.{model.__name__}"] = definition
        return [{"$ref": f"#/$defs/{section}.{model.__name__}"} for model in models]

    for section, model, registry in (
        ("problem", arguments, PROBLEMS),
        ("schedule", schedule, SCHEDULES),
        ("compression", compressor, COMPRESSORS),
    ):
        kinds = refs(section, [model(*part) for part in registry.items()])
        properties[section] = {"anyOf": [*kinds, YOUR_OWN]}
    for section, only in (("privacy", privacy()), ("secure", SecureSums)):
        properties[section] = refs("study", [only])[0]
    for section, model, registry in (
        ("participation", scenario, PARTICIPATION),
        ("algorithms", algorithm, ALGORITHMS),
    ):
        kinds = refs(section, [model(*part) for part in registry.items()])
        properties[section] = {
            "type": "object",
            "minProperties": 1,
            "properties": {ref["$ref"].rsplit(".", 1)[1]: ref for ref in kinds},
            "additionalProperties": {"anyOf": [*kinds, YOUR_OWN]},
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
