"""The body of a request, JSON or a form, as fields."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from litlab.commands.serve.refusal import Refusal
from litlab.util.text import nearest

JSON, FORM = "application/json", "multipart/form-data"
_PARTS = 16  # of a form, at most


@dataclass(frozen=True)
class Given:
    """What somebody has sent.

    Args:
        values: Values of JSON, or texts of a form, by the names of the fields.
        file: Bytes of the form's field ``file``.
    """

    values: Mapping[str, Any]
    file: bytes | None = None

    def only(self, *names: str) -> None:
        """Refuse fields of other names.

        Raises:
            Refusal: There is one.
        """
        for name in self.values:
            if name not in names:
                hint = nearest(name, names, f"; it takes {', '.join(names)}")
                raise Refusal(422, f"{_shown(name)}: the model takes no field of that name{hint}")

    def text(self, name: str) -> str | None:
        """Return a field that must be a text; None where it is not there.

        Raises:
            Refusal: It is something else, or has characters that are none.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise Refusal(422, f"{name}: it must be a text")
        check_characters(name, value)
        return value

    def flag(self, name: str) -> bool:
        """Return a field that is true or false, by default false.

        Raises:
            Refusal: It is neither.
        """
        value = self.values.get(name, False)
        if value not in (True, False, "true", "false", "1", "0"):
            raise Refusal(422, f"{name}: it must be true or false")
        return value in (True, "true", "1")


def read_body(content_type: str, body: bytes) -> Given:
    """Read a body.

    Args:
        content_type: Its ``Content-Type``.
        body: Its bytes.

    Raises:
        Refusal: It is of another kind, or damaged.
    """
    kind = media_type(content_type)
    if kind == JSON:
        return Given(_json(body))
    if kind == FORM:
        return _form(content_type, body)
    raise wrong_type(kind)


def media_type(content_type: str) -> str:
    """Return the first part of a ``Content-Type``."""
    return content_type.partition(";")[0].strip().lower()


def wrong_type(kind: str) -> Refusal:
    """Return the refusal of a kind of body."""
    return Refusal(415, f"the Content-Type is {_shown(kind) if kind else 'missing'}; send {JSON} or {FORM}")


def check_characters(name: str, text: str) -> None:
    """Refuse a text with halves of characters, which JSON can spell.

    Raises:
        Refusal: It has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(422, f"{name}: it has half of a character at position {error.start}; send whole ones") from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode(), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 (byte {error.start}); send JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise Refusal(400, "the body is not JSON that can be read: a number is too long, or it is too deep") from None
    if not isinstance(content, dict):
        raise Refusal(422, "the body must be a JSON object, such as {...}")
    return content


def _no_number(name: str) -> NoReturn:
    raise Refusal(400, f"the body is not JSON: {name} is not a number in JSON; send null for one that is missing")


def _form(content_type: str, body: bytes) -> Given:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import FormParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise Refusal(400, f"the Content-Type {FORM} has no boundary")
    fields: list[Any] = []
    files: list[Any] = []
    whole: list[bool] = []

    def kept(where: list[Any]) -> Callable[[Any], None]:
        def keep(part: Any) -> None:
            if len(fields) + len(files) >= _PARTS:
                raise Refusal(400, f"the form has more than {_PARTS} parts")
            where.append(part)

        return keep

    in_memory: Any = {"MAX_MEMORY_FILE_SIZE": len(body) + 1}
    try:
        parser = FormParser(
            FORM, kept(fields), kept(files), lambda: whole.append(True), boundary=boundary, config=in_memory
        )
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Refusal(400, "the form is damaged") from None
    if not whole:
        raise Refusal(400, "the form is damaged: its end is missing")
    try:
        values = {field.field_name.decode(): (field.value or b"").decode() for field in fields}
        names = [file.field_name.decode() for file in files]
    except UnicodeDecodeError:
        raise Refusal(400, "a text in the form is not UTF-8") from None
    for name in names:
        if name != "file":
            raise Refusal(422, f"{_shown(name)}: the form takes no file of that name; name it file")
    if len(files) > 1:
        raise Refusal(422, f"the form has {len(files)} files; send one")
    return Given(values, _content(files[0]) if files else None)


def _content(file: Any) -> bytes:
    file.file_object.seek(0)
    return file.file_object.read()


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:37] + "...")
