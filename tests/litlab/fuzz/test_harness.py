"""The harness itself: every way to end badly must be seen, else a fuzz finds nothing."""

import time

import pytest

from tests.litlab.fuzz.harness import MEMORY, run_input


def crash():
    raise ZeroDivisionError("a bug")


def two_lines():
    import sys

    print("error: one\nerror: two", file=sys.stderr)
    return 2


def leak():
    import sys

    print("error: 'trainer.max_epochs' must be <class 'NoneType'>", file=sys.stderr)
    return 2


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (crash, "traceback"),
        (lambda: time.sleep(60), "hang"),
        (lambda: bytearray(2 * MEMORY), "traceback"),
        (lambda: 1, "noise"),
        (two_lines, "noise"),
        (leak, "leak"),
        (lambda: 0, "ok"),
    ],
)
def test_what_ends_badly_is_seen(tmp_path, monkeypatch, command, kind):
    monkeypatch.setattr("tests.litlab.fuzz.harness.run_command", lambda package: command())
    ending = run_input(["fit", "--trainer.max_epochs=1"], tmp_path, seconds=0.3)
    assert ending.kind == kind, ending
    assert ending.fine == (kind == "ok")


def test_a_mistake_ends_in_one_line(tmp_path):
    ending = run_input(["fitt"], tmp_path)
    assert (ending.kind, ending.text) == ("line", "error: fitt: there is no such command; did you mean 'fit'?")
