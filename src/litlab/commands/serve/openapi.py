"""The description of the interface that programs read: OpenAPI 3.1, for the model that is served."""

from collections.abc import Mapping
from typing import Any

from litlab.commands.serve.body import FORM, JSON

Schema = dict[str, Any]
_NUMBER: Schema = {"type": "number"}
_TEXT: Schema = {"type": "string"}
_FILE: Schema = {"type": "string", "format": "binary"}
_ERRORS = {
    "400": "The body is damaged.",
    "401": "The token is missing or wrong.",
    "403": "The server was called by another name than localhost.",
    "408": "The body came too slowly.",
    "413": "The body, text or table is too large.",
    "415": "The body is neither JSON nor a form.",
    "422": "The input can't be used.",
    "500": "The server failed.",
    "503": "Too many requests wait, or the model is being loaded again; try again after Retry-After seconds.",
    "504": "There was no answer in time.",
}


def openapi(manifest: Mapping[str, Any], token: bool) -> dict[str, Any]:
    """Return the description.

    Args:
        manifest: Manifest of the model.
        token: Whether a token is needed.
    """
    given, sent, answer = _kinds(manifest["kind"], manifest["facts"])
    errors = {
        status: {"description": what, "content": _content(_object({"error": _TEXT}))}
        for status, what in _ERRORS.items()
        if status != ("403" if token else "401")
    }
    body = {
        "required": True,
        "content": {JSON: {"schema": given}, FORM: {"schema": sent}},
    }
    predict = {
        "summary": f"Ask the model ({manifest['kind']})",
        "requestBody": body,
        "responses": {"200": {"description": "The answer.", "content": _content(answer)}, **errors},
    }
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": manifest["run"]["name"], "version": str(manifest["run"].get("commit") or "unknown")[:12]},
        "paths": {
            "/predict": {"post": predict},
            "/info": {"get": {"summary": "What is known of the model and the server", "responses": _plain()}},
            "/health": {
                "get": {
                    "summary": "Whether the model can be asked; 503 while it can't",
                    "responses": {**_plain(), "503": errors["503"]},
                    "security": [],
                }
            },
        },
    }
    if token:
        described["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        described["security"] = [{"token": []}]
    return described


def _kinds(kind: str, facts: Mapping[str, Any]) -> tuple[Schema, Schema, Schema]:
    """Return the schemas of a JSON body, of a form and of an answer."""
    if kind == "images":
        image = {
            "type": "string",
            "contentEncoding": "base64",
            "description": "A file: JPEG, PNG, WebP, GIF, BMP, TIFF, PPM.",
        }
        return _object({"image": image}), _object({"file": _FILE, "image": image}, []), _classes(facts)
    if kind == "texts":
        counts = {"tokens": {"type": "integer"}, "tokens_read": {"type": "integer"}}
        answer = _classes(facts)
        form = _object({"text": _TEXT, "file": _FILE}, [])
        return _object({"text": _TEXT}), form, _object({**answer["properties"], **counts})
    if kind == "series":
        names = [facts["time_column"], *facts["targets"]]
        least = {"minItems": facts["context_length"]}
        values = {"type": "object", "additionalProperties": {"type": "array", "items": _NUMBER}}
        end = {**values, "type": ["object", "null"]}
        past = {"type": "boolean", "default": False, "description": "Whether the answer repeats the rows it is from."}
        times = {"times": {"type": "array", "items": _TEXT}}
        answer = {**times, "forecast": values, "lower": end, "upper": end, "past": _object({**times, "values": values})}
        given = _object({"series": _rows(dict.fromkeys(names, _any()), **least), "past": past}, ["series"])
        form = _object({"file": _FILE, "series": _TEXT, "past": _TEXT}, [])
        return given, form, _object(answer, ["times", "forecast", "lower", "upper"])
    columns = {name: {"type": ["number", "string", "null"]} for name in facts["numbers"]}
    columns |= {name: {"type": ["string", "number", "null"]} for name in facts["categories"]}
    numbers = _object({"predicted": _object(dict.fromkeys(facts["targets"], _NUMBER))})
    each = _classes(facts) if facts["class_names"] else numbers
    answer = _object({"rows": {"type": "array", "items": each}})
    return _object({"rows": _rows(columns, minItems=1)}), _object({"file": _FILE, "rows": _TEXT}, []), answer


def _rows(columns: Mapping[str, Schema], **more: Any) -> Schema:
    """Return the schema of rows: a list of objects, or the text of a CSV file."""
    listed = {"type": "array", "items": _object(columns, extra=True), **more}
    return {"oneOf": [listed, {"type": "string", "description": "A CSV file with a header."}]}


def _classes(facts: Mapping[str, Any]) -> Schema:
    each = _object(dict.fromkeys(facts["class_names"], _NUMBER))
    return _object({"class": {"enum": facts["class_names"]}, "probability": _NUMBER, "probabilities": each})


def _object(properties: Mapping[str, Schema], required: list[str] | None = None, extra: bool = False) -> Schema:
    needed = list(properties) if required is None else required
    named = {"type": "object", "properties": dict(properties), "required": needed}
    return named if extra else {**named, "additionalProperties": False}


def _any() -> Schema:
    return {"type": ["number", "string"]}


def _content(schema: Schema) -> dict[str, Any]:
    return {JSON: {"schema": schema}}


def _plain() -> dict[str, Any]:
    return {"200": {"description": "A JSON object.", "content": _content({"type": "object"})}}
