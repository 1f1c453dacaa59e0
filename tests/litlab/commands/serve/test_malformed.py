"""Requests that can't be answered get one sentence, and the log no traceback."""

import json
import re

import pytest

from litlab.data.images import decode
from tests.litlab.commands.serve.client import form
from tests.litlab.commands.serve.malformed import bomb, requests

KINDS = ("images", "texts", "series", "rows")


def check(reply) -> str:
    message = json.loads(reply.body)["error"]
    assert 400 <= reply.status < 500, (reply.status, message)
    assert message.isprintable()
    assert not re.search(r"Traceback|Error\b|File \"|/tmp|\.py\b|data\.\w|--\w", message), message
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_requests_of_each_kind(answerers, kind, capsys):
    """As the worker gets them; the server has looked at the Content-Type."""
    answerer, told = answerers(kind, "run"), set()
    capsys.readouterr()  # of the fit, unless another test was first
    for body, headers in requests(kind, 200):
        (reply,) = answerer.answers([(headers["Content-Type"], body)])
        told.add(check(reply))
    assert len(told) > 15
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""


def test_a_huge_image_is_refused_by_its_header(answerers, monkeypatch):
    answerer = answerers("images", "run")
    monkeypatch.setattr(decode, "load_upright", lambda *_: pytest.fail("it was decoded"))
    for side, told in ((8_000, "8000 x 8000"), (12_000, "12000 x 12000"), (60_000, "3600000000")):
        body, headers = form(bomb(side))
        (reply,) = answerer.answers([(headers["Content-Type"], body)])
        assert f"{told} pixels" in check(reply)


def test_long_texts_and_tables_are_refused(answerers):
    (reply,) = answerers("texts", "run").answers([("application/json", json.dumps({"text": "a " * 60_000}).encode())])
    assert (reply.status, check(reply)) == (413, "text: it has 120,000 characters; send at most 100,000")
    (reply,) = answerers("rows", "run").answers([("application/json", json.dumps({"rows": [{}] * 1001}).encode())])
    assert (reply.status, check(reply)) == (413, "rows: it has 1,001 rows; send at most 1,000")
    body, headers = form(b"age\r" * 1002)  # lines end in several ways
    (reply,) = answerers("rows", "run").answers([(headers["Content-Type"], body)])
    assert (reply.status, check(reply)) == (413, "file: it has 1,002 lines; send at most 1,000 rows")
    body, headers = form(b"\n" * 50_002)
    (reply,) = answerers("series", "run").answers([(headers["Content-Type"], body)])
    assert (reply.status, check(reply)) == (413, "file: it has 50,002 lines; send at most 50,000 rows")


def test_numbers_far_from_the_training_rows_are_refused(answerers, example):
    """As ``predict`` refuses them: the answer would be that for the end of the scale."""
    lines = example("series").input.read_text().splitlines()
    lines[-2] = ",".join([lines[-2].split(",")[0], "1e15", *lines[-2].split(",")[2:]])
    request = ("application/json", json.dumps({"series": "\n".join(lines)}).encode())
    (reply,) = answerers("series", "run").answers([request])
    assert "column 'load' at " in check(reply)
    assert "is far outside the training rows' range" in check(reply)


def test_a_form_of_many_parts_is_refused_at_once(answerers):
    body, headers = form(None, **{f"field{number}": "x" for number in range(17)})
    (reply,) = answerers("texts", "run").answers([(headers["Content-Type"], body)])
    assert (reply.status, check(reply)) == (400, "the form has more than 16 parts")


def test_compressed_files_are_refused(answerers):
    """A few bytes could unpack to more than the memory holds."""
    import gzip

    for kind in ("series", "rows"):
        body, headers = form(gzip.compress(b"a,b\n" * 1000))
        (reply,) = answerers(kind, "run").answers([(headers["Content-Type"], body)])
        assert "it is not UTF-8" in check(reply)
