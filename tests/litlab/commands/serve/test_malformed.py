"""Requests that can't be answered get one sentence, and raise nothing."""

import io
import json
import re

import pytest
from PIL import Image

JSON = {"Content-Type": "application/json"}


def form(file: bytes):
    """Body and headers of a form with a file."""
    part = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + file
    return part + b"\r\n--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


def make_picture(side):
    """A black picture, which takes few bytes however large it is."""
    stream = io.BytesIO()
    Image.new("1", (side, side)).save(stream, "PNG")
    return stream.getvalue()


def as_json(**content):
    """The same of JSON."""
    return json.dumps(content).encode(), JSON


ROW = dict.fromkeys(["age", "income", "visits", "distance"], 1)
ROW |= dict.fromkeys(["plan", "city", "channel"], "x")
DAYS = [{"date": f"2024-01-{day:02}", "load": 1.0, "heat": 2.0} for day in range(1, 30)]
NO_NUMBERS = ("x", True, [], "\ud800", "1e999", 10**400)
NOT_JSON = (
    b"\xff\xfe{\x00}\x00",
    b'{"a": NaN}',
    b"[" * 100_000,
    b'{"text": ',
    b'{"n": ' + b"9" * 5000 + b"}",
    b"[]",
)
VALUES = (1, {}, None, "", "  ", [[[]]], "\ud800", [1], [{"a": 1}])
TYPES = ("", "text/plain", "multipart/form-data", "image/png")
FORM, HEADERS = form(b"some text")
FORMS = (
    *(FORM.replace(b'name="file"', name) for name in (b'name="f"', b"", b'name="\xff"')),
    FORM[:-11] * 40,
)
FIELDS = {"images": "image", "texts": "text", "series": "series", "rows": "rows"}
OTHERS = {
    "texts": [form(b"\xff"), form(b" ")],
    "images": [
        *(form(file) for file in (make_picture(8_000), make_picture(400)[:45], b"<svg/>", b"")),
        as_json(image="???"),
    ],
    "series": [
        as_json(series=[*DAYS, ROW]),
        as_json(series=DAYS),
        as_json(series=[*DAYS, DAYS[0] | {"date": "2024-13-45"}]),
        *(as_json(series=[*DAYS, DAYS[0] | {"load": value}]) for value in NO_NUMBERS),
        form(b"\x1f\x8b\x08"),
        form(b"\n" * 50_002),
        form(b"date,load\n2024-01-01,1\n"),
    ],
    "rows": [
        *(as_json(rows=[ROW | {"age": value}]) for value in NO_NUMBERS),
        as_json(rows=[ROW, dict.fromkeys(ROW)]),
        as_json(rows=[ROW] * 1001),
        form(b"age\n1\n"),
    ],
}


# Starlette closes cut forms late
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", FIELDS)
def test_malformed_requests(client, kind):
    requests = [(body, JSON) for body in NOT_JSON]
    requests += [(b'{"text": "a"}', {"Content-Type": name}) for name in TYPES]
    requests += [as_json(**{name: value}) for value in VALUES for name in (FIELDS[kind], "\0")]
    requests += [(body, HEADERS) for body in (*FORMS, FORM[:40], FORM[:-20])]
    requests += OTHERS[kind]
    connected, messages = client(kind), set()
    for body, headers in requests:
        response = connected.post("/predict", content=body, headers=headers)
        [message] = response.json().values()
        assert 400 <= response.status_code < 500, (body[:200], response.status_code, message)
        assert message.isprintable()
        assert not re.search(r"Traceback|File \"|/tmp|\.py\b|data\.\w|--\w", message), (
            body[:200],
            message,
        )
        messages.add(message)
    assert len(messages) > 15
    if kind == "images":
        assert any("exceeds limit of 40000000 pixels" in message for message in messages)
