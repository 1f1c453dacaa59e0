"""What ends a command: a line for what a person can put right, the traceback for the rest."""

import pytest
from torch.optim.lr_scheduler import StepLR

from litlab.cli.run_errors import explain_error
from litlab.errors import UserError, building


def raise_in(key: str, error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught, building(key):
        raise error
    return caught.value


def test_what_becomes_a_line_and_what_keeps_its_traceback():
    wrapped = ValueError("jsonargparse's page of text")
    wrapped.__cause__ = UserError("a: b; c")
    assert explain_error(wrapped) == "a: b; c"
    assert explain_error(PermissionError(13, "denied", "x")) == "[Errno 13] denied: 'x'"
    assert str(explain_error(MemoryError())).startswith("out of memory")
    for bug in (ValueError("in a step"), FileNotFoundError(2, "No such file", "x"), KeyError("x")):
        assert explain_error(bug) is None
    for bug in (ZeroDivisionError("a bug"), TypeError("f() missing 1 required argument: 'x'")):
        assert explain_error(raise_in("model", bug)) is None


def test_an_argument_that_a_class_needs():
    with pytest.raises(TypeError) as caught, building("model.schedule"):
        StepLR(None)  # pyright: ignore[reportCallIssue, reportArgumentType]
    line = explain_error(caught.value)
    says = "model.schedule: StepLR needs 'step_size'; add it; LITLAB_TRACEBACK=1 shows where"
    assert line == says
