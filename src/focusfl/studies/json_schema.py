"""The schema of a study, for editors."""

from typing import Any

from pydantic import BaseModel

from focusfl.studies import schema
from focusfl.studies.schema import Section

YOUR_OWN = {  # for editors: what it takes is known to its module alone
    "type": "object",
    "properties": {"kind": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
    "required": ["kind"],
}


def json_schema() -> dict[str, Any]:
    """The schema of a study, for editors."""
    whole = schema.Settings.model_json_schema()
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
        ("problem", schema.PROBLEM),
        ("schedule", schema.SCHEDULE),
        ("compression", schema.COMPRESSION),
    ):
        properties[name] = {"anyOf": [*refs(name, section).values(), YOUR_OWN]}
    for name, model in (("privacy", schema.privacy()), ("secure", schema.SecureSums)):
        properties[name] = ref(f"study.{name}", model)
    for name, section in (("participation", schema.SCENARIO), ("algorithms", schema.ALGORITHM)):
        kinds = refs(name, section)
        properties[name] = {
            "type": "object",
            "minProperties": 1,
            "properties": kinds,
            "additionalProperties": {"anyOf": [*kinds.values(), YOUR_OWN]},
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}
