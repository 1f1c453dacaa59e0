"""Requests that can't be answered get one sentence, and raise nothing."""

import gzip
import io
import json
import re

import pytest
from PIL import Image

from tests.litlab.commands.serve.client import JSON, form


def make_picture(side: int, form: str) -> bytes:
    """A black picture, which takes few bytes however large it is."""
    stream = io.BytesIO()
    Image.new("1", (side, side)).save(stream, form)
    return stream.getvalue()


def as_json(**content: object) -> tuple[bytes, dict[str, str]]:
    return json.dumps(content).encode(), JSON


ROW = {"age": 1, "income": 2, "visits": 3, "distance": 4, "plan": "family", "city": "x", "channel": "web"}
DAYS = [{"date": f"2024-01-{day:02}", "load": 1.0, "heat": 2.0} for day in range(1, 30)]
NO_NUMBERS = ("x", True, [], {}, "1,5", "12 kW", "\ud800", "1e999", 10**400, "9" * 5000)
NOT_JSON = (
    b"", b"{", b"{]", b"nul", b'{"text": }', b'{"text": "a" "b"}', b"\xff\xfe{\x00}\x00", b'{"a": NaN}', b"'a'", b"--",
    b"[" * 100_000, b'{"a":' * 50_000, b'{"n": ' + b"9" * 5000 + b"}", b'{"text": "\xff"}', b"\0", b"[]", b"1", b'"a"',
)  # fmt: skip
VALUES = (1, True, [], {}, None, "", "  ", [[[]]], "\ud800", -0.5, [1], [{"a": 1}])
TYPES = ("", "text/plain", "application/xml", "multipart/form-data", "multipart/form-data; boundary=", "image/png")
FORM = form(b"some text")[0]
FORMS = (
    b"some text", *(FORM.replace(b'name="file"', name) for name in (b'name="f"', b"", b'name="\xff"')),
    b"".join(FORM[:-11].replace(b"x", b"%d" % n) for n in range(40)), *(FORM[:n] for n in range(20, len(FORM) - 14, 6)),
)  # fmt: skip
FIELDS = {"images": "image", "texts": "text", "series": "series", "rows": "rows"}
OTHERS = {
    "texts": [form(b"\xff"), form(b" ")],
    "images": [
        *(form(make_picture(side, "PNG")) for side in (8_000, 16_000)), form(make_picture(40, "JPEG")[:300]),
        form(b"<svg/>"), form(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), form(b""),
        *(as_json(image=text) for text in ("???", "data:image/png;base64,", "a" * 1001)),
    ],
    "series": [
        as_json(series=[*DAYS, ROW]), as_json(series=DAYS),
        *(as_json(series=[*DAYS, DAYS[0] | {"load": value}]) for value in NO_NUMBERS),
        *(as_json(series=[*DAYS, DAYS[0] | {"date": day}]) for day in (None, "2024-13-45")),
        form(gzip.compress(b"a,b\n" * 1000)), form(b"\n" * 50_002), form(b"date,load\n2024-01-01,1\n"),
    ],
    "rows": [
        *(as_json(rows=[ROW | {"age": value}]) for value in NO_NUMBERS), as_json(rows=[ROW, dict.fromkeys(ROW)]),
        *(as_json(rows=rows) for rows in ([ROW, {"age": 1}], [ROW, 1], [ROW] * 1001)),
        form(gzip.compress(b"a,b\n" * 1000)), form(b"age\r" * 1002), form(b"age\n1\n"),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Starlette closes cut forms late
@pytest.mark.parametrize("kind", FIELDS)
def test_200_malformed_requests(client, kind):
    requests = [(body, JSON) for body in NOT_JSON] + [(b'{"text": "a"}', {"Content-Type": name}) for name in TYPES]
    for name in (FIELDS[kind], "other", "x" * 1000, "\0"):
        requests += [as_json(**{name: value}) for value in VALUES]
    requests += [(body, form(b"")[1]) for body in FORMS] + OTHERS[kind]
    assert len(requests) >= 80
    connected, messages = client(kind), set()
    for body, headers in requests:
        response = connected.post("/predict", content=body, headers=headers)
        [message] = response.json().values()
        assert 400 <= response.status_code < 500, (body[:200], response.status_code, message)
        assert message.isprintable()
        assert not re.search(r"Traceback|File \"|/tmp|\.py\b|data\.\w|--\w", message), (body[:200], message)
        messages.add(message)
    assert len(messages) > 15
    if kind == "images":
        assert any("exceeds limit of 40000000 pixels" in message for message in messages)
