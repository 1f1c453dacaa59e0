"""The JSON schema of sweep files."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

from litlab.commands.editor.flags import flags, referred, takes_many
from litlab.commands.editor.values import DRAFT, Schema
from litlab.commands.sweep.reading import OURS
from litlab.commands.sweep.samplers import PRUNERS, SAMPLERS
from litlab.commands.sweep.spec import DIRECTIONS, KEYS

DIRECTION = {"enum": list(DIRECTIONS)}
ENTRY = {"$ref": "#/definitions/entry"}
SCALAR = ["string", "number", "boolean", "null"]
HELP = {
    "name": "Name of the sweep; its folder is lightning_logs/sweeps/NAME/. By default that of the file.",
    "base": "Config files and overlays of the experiment, relative to this file.",
    "settings": "Values for all trials, by flag.",
    "metric": "What is optimised, such as val/acc; or a list.",
    "direction": "Whether less or more is better; or a list, one for each metric. Left out, as it is known.",
    "trials": "How many trials, of a grid at most its points. Every trial counts once, however it ends.",
    "hours": "How long one command starts new trials.",
    "sampler": "How the values of a trial are chosen.",
    "pruner": "Which trials are stopped early.",
    "seeds": "Fits per trial; the trial's value is their mean.",
    "spread": "By how many standard deviations over the seeds the mean is made worse.",
    "stall_minutes": "After how many minutes without a batch a fit is killed.",
    "space": "What is searched, by flag.",
}
RANGE: Schema = {
    "properties": {
        "low": {"type": "number", "description": "The least value."},
        "high": {"type": "number", "description": "The greatest value. With low a whole number: whole numbers only."},
        "step": {"type": "number", "description": "Distance of the values. Not with log."},
        "log": {"type": "boolean", "description": "Whether small values are tried as often as large ones."},
        "when": {"$ref": "#/definitions/when"},
    },
    "required": ["low", "high"],
    "additionalProperties": False,
}
CHOICES: Schema = {
    "properties": {
        "choices": {"type": ["array", "object"], "description": "Values or blocks, or blocks by name."},
        "when": {"$ref": "#/definitions/when"},
    },
    "additionalProperties": False,
}
RANGE_OR_CHOICES: Schema = {"type": "object", "if": {"required": ["choices"]}, "then": CHOICES, "else": RANGE}
WHEN: Schema = {
    "type": "object",
    "description": "For which values of entries above this one is searched.",
    "additionalProperties": {"type": [*SCALAR, "array"]},
}


def sweep_schema(config: Schema) -> Schema:
    """Return the schema of sweep files.

    Args:
        config: The schema of ``fit``.
    """
    known = {key: schema for key, schema in flags(config).items() if key.split(".")[0] not in (*OURS, "base")}
    any_network = [key for key, schema in known.items() if takes_many(referred(schema, config), config)]
    below = {rf"^({'|'.join(map(re.escape, any_network))})\..": {}}  # the settings of a library's networks
    parts: dict[str, Schema] = {
        "name": {"type": "string", "pattern": r"^[^./\\ ][^/\\ ]*$"},
        "base": {"type": ["string", "array"], "items": {"type": "string"}},
        "settings": {
            "type": ["object", "null"],
            "properties": {key: _plain(referred(schema, config)) for key, schema in known.items()},
            "patternProperties": below,
            "additionalProperties": False,
        },
        "metric": {"type": ["string", "array"], "items": {"type": "string"}},
        "direction": {
            "type": ["string", "array"],
            "examples": list(DIRECTIONS),
            "if": {"type": "string"},
            "then": DIRECTION,
            "items": DIRECTION,
        },
        "trials": {"type": ["integer", "null"], "minimum": 1},
        "hours": {"type": ["number", "null"], "minimum": 0},
        "sampler": _chosen(SAMPLERS),
        "pruner": _chosen(PRUNERS),
        "seeds": {"type": ["integer", "null"], "minimum": 1},
        "spread": {"type": ["number", "null"], "minimum": 0},
        "stall_minutes": {"type": ["number", "null"], "minimum": 0.01},
        "space": {
            "type": "object",
            "properties": dict.fromkeys(known, ENTRY),
            "patternProperties": dict.fromkeys(below, ENTRY),
            "additionalProperties": False,
            "minProperties": 1,
        },
    }
    return {
        "$schema": DRAFT,
        "type": "object",
        "properties": {key: {**parts[key], "description": HELP[key]} for key in KEYS},
        "required": ["base", "metric", "space"],
        "additionalProperties": False,
        "definitions": {"entry": RANGE_OR_CHOICES, "when": WHEN},
    }


def _plain(schema: Schema) -> Schema:
    """Return a setting's schema, of classes and blocks the description alone: the sweep checks those itself."""
    is_plain = "$ref" not in str(schema) and "properties" not in schema
    return schema if is_plain else {key: text for key, text in schema.items() if key == "description"}


def _chosen(classes: Mapping[str, type]) -> Schema:
    """Return the schema of a sampler or pruner: its name, or the name with arguments."""
    names = list(classes)
    by_name = []
    for name, cls in classes.items():
        chosen = {"properties": {"name": {"const": name}}, "required": ["name"]}
        arguments = {key: _like(one.default) for key, one in inspect.signature(cls).parameters.items()}
        then = {"properties": {"name": {}, **arguments}, "additionalProperties": False}
        by_name.append({"if": chosen, "then": then})
    block = {"properties": {"name": {"enum": names}}, "required": ["name"], "allOf": by_name}
    by_form = [{"if": {"type": "string"}, "then": {"enum": names}}, {"if": {"type": "object"}, "then": block}]
    return {"type": ["string", "object", "null"], "examples": names, "allOf": by_form}


def _like(default: Any) -> Schema:
    """Return the schema of an argument: numbers and truth values are like its default."""
    return {"type": "boolean" if isinstance(default, bool) else "number"} if isinstance(default, int | float) else {}
