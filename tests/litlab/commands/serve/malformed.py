"""Requests that no model can answer; not a test itself."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from tests.litlab.commands.serve.client import JSON, form

Request = tuple[bytes, dict[str, str]]

VALUES = ("1", "true", "[]", "{}", "null", '""', '"  "', "1e999", "[[[]]]", '"\\ud800"', "-0", '[{"a": 1}]')
NOT_JSON = (b"{", b"{]", b"nul", b'{"text": }', b'{"text": "a" "b"}', b"\xff\xfe{\x00}\x00", b'{"a": NaN}',
            b"'a'", b"[" * 100_000, b'{"a":' * 50_000, b'{"n": ' + b"9" * 5000 + b"}", b'{"text": "\xff"}', b"--",
            b"\0")  # fmt: skip
TYPES = ("", "text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data",
         "multipart/form-data; boundary=", "application/octet-stream", "image/png", "application/json5")  # fmt: skip


def requests(kind: str, count: int, seed: int = 0) -> Iterator[Request]:
    """Requests to a model of a kind, each wrong in another way; the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    makers = (
        of_values,
        of_bytes,
        of_types,
        of_forms,
        {"images": of_images, "series": of_series, "rows": of_rows}.get(kind),
    )
    makers = tuple(filter(None, makers))
    for number in range(count):
        yield makers[number % len(makers)](rng, kind)


def pick(rng: np.random.Generator, values):
    return values[int(rng.integers(len(values)))]


def of_values(rng: np.random.Generator, kind: str) -> Request:
    """JSON of another shape."""
    name = pick(rng, ("text", "image", "series", "rows", "file", "x" * 1000, "\u0000", "text "))
    body = f"{{{json.dumps(name)}: {pick(rng, VALUES)}}}"
    return pick(rng, (body, f"[{body}]", f'{{"a": {body}}}', json.dumps(body))).encode(), JSON


def of_bytes(rng: np.random.Generator, kind: str) -> Request:
    """No JSON."""
    if rng.random() < 0.5:
        return pick(rng, NOT_JSON), JSON
    return b"\x80" + rng.bytes(int(rng.integers(1, 3000))), JSON


def of_types(rng: np.random.Generator, kind: str) -> Request:
    """Another kind of body, or a form that is named wrongly."""
    return b'{"text": "a"}', {"Content-Type": pick(rng, TYPES)}


def of_forms(rng: np.random.Generator, kind: str) -> Request:
    """A form that is cut, has other fields, or is none."""
    body, headers = form(rng.bytes(200), past="1")
    way = rng.integers(5)
    if way == 0:
        return body[: int(rng.integers(1, len(body) - 3))], headers
    if way == 1:
        return form(None, **{pick(rng, ("txt", "image2", "a\n b", "é")): "x"})
    if way == 2:
        return rng.bytes(300), headers
    if way == 3:
        return form(None, **{f"field{number}": "x" for number in range(40)})
    return body.replace(b'name="file"', pick(rng, (b'name="f"', b"", b'name="\xff"'))), headers


def of_images(rng: np.random.Generator, kind: str) -> Request:
    """An image that is damaged, of another kind, or huge."""
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(stream, pick(rng, ("PNG", "JPEG", "GIF")))
    data = stream.getvalue()
    way = rng.integers(5)
    if way == 0:
        return form(data[: int(rng.integers(0, len(data) // 2))])
    if way == 1:
        return form(bomb(60_000))
    if way == 2:
        return form(pick(rng, (b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>", b"%PDF-1.7")))
    text = pick(rng, ("???", base64.b64encode(data).decode()[:-60], "data:image/png;base64,", "a" * 1001))
    return json.dumps({"image": text}).encode(), JSON


def bomb(side: int) -> bytes:
    """A PNG with a great many pixels in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def of_series(rng: np.random.Generator, kind: str) -> Request:
    """A series that is too short, or has a row that is wrong."""
    rows = [{"date": f"2024-01-{day:02}", "load": 1.0, "heat": 2.0} for day in range(1, int(rng.integers(2, 30)))]
    row, name = pick(rng, rows), pick(rng, ("date", "load", "heat"))
    row[name] = pick(rng, (None, "x", True, [], {}, 10**400, "1,5", "\ud800", "2024-13-45", "9" * 5000))
    if rng.random() < 0.5:
        del row[name]
    return json.dumps({"series": rows}).encode(), JSON


def of_rows(rng: np.random.Generator, kind: str) -> Request:
    """A row without a column, or with something else in it."""
    row = {"age": 1, "income": 2, "visits": 3, "distance": 4, "plan": "family", "city": "x", "channel": "web"}
    name = pick(rng, ("age", "income", "visits", "distance"))
    row[name] = pick(rng, ("x", True, [], {}, "1,5", "12 kW", "\ud800", "1e999", "9" * 5000))
    if rng.random() < 0.3:
        del row[name]
    body = {"rows": [row]} if rng.random() < 0.8 else {"rows": pick(rng, ([], [[]], [1], {}, "age\n1\n", [row] * 1001))}
    return json.dumps(body).encode(), JSON
