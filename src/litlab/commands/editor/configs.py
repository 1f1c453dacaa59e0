"""The JSON schemas of configs, one for each verb: experiments and overlays alike, as either may lack any key."""

from typing import Any

from litlab.commands.editor.bounds import SEED, TRAINER
from litlab.commands.editor.definitions import Definitions
from litlab.commands.editor.settings import VERBS, Setting, settings_of_verbs
from litlab.commands.editor.values import DRAFT, Schema

ONLY_FLAGS = ("config", "allow_modules")
NEEDED = ("model", "data")  # null means that they are not set
TRAINER_HELP = {"description": "The arguments of Lightning's Trainer."}
BASE: Schema = {
    "type": ["string", "array"],
    "items": {"type": "string"},
    "description": "Config files that this one builds on, relative to it.",
}


def config_schemas() -> dict[str, Schema]:
    """Return the schemas of configs by verb. That of ``fit`` holds the definitions; the others refer to it."""
    definitions, found = Definitions(), {}
    for verb, settings in settings_of_verbs().items():
        properties = _properties(settings, definitions)
        if verb != VERBS[0]:
            shared = found[VERBS[0]]["properties"]
            same = {key: {"$ref": f"{VERBS[0]}.json#/properties/{key}"} for key in properties if key in shared}
            properties |= {key: to for key, to in same.items() if shared[key] == properties[key]}
        found[verb] = {
            "$schema": DRAFT,
            "type": "object",
            "properties": properties,
            "patternProperties": {rf"^({'|'.join(properties)})\..": {}},  # as in the overlays that a sweep writes
            "additionalProperties": False,
        }
    found[VERBS[0]]["definitions"] = definitions.found
    return found


def _properties(settings: dict[str, Setting], definitions: Definitions) -> dict[str, Any]:
    trainer = {key.removeprefix("trainer."): [one] for key, one in settings.items() if key.startswith("trainer.")}
    properties = {"base": BASE, "trainer": {"type": "object", **TRAINER_HELP, **definitions.block(trainer, TRAINER)}}
    for key, setting in settings.items():
        if key not in ONLY_FLAGS and not key.startswith("trainer."):
            properties[key] = definitions.setting([setting], SEED if key == "seed_everything" else None)
            if key in NEEDED:
                properties[key]["type"].remove("null")
    return properties
