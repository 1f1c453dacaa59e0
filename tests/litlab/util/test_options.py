"""What the light verbs share: how they end, and what they say of wrong options."""

import pytest

from litlab.errors import UserError
from litlab.util.options import Options, answer


def count(arguments: list[str]) -> int:
    return answer(_count, arguments)


def _count(arguments: list[str]) -> int:
    options = Options("count", "Count things.")
    options.add_argument("what", choices=("sheep", "steps"))
    options.add_argument("--to", type=int)
    chosen = options.parse_args(arguments)
    if chosen.to == 0:
        raise KeyboardInterrupt
    return 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sheep", "--to", "3"], 0, ""),
        (["sheep", "--to", "0"], 130, ""),
        (["sheep", "goats"], 2, "unrecognized arguments: goats"),
        (["sheep", "--too", "3"], 2, "unrecognized arguments: --too 3"),
        (["sheep", "--goats"], 2, "unrecognized arguments: --goats"),
    ],
)
def test_how_a_verb_ends(capsys, arguments, code, says):
    assert count(arguments) == code
    assert capsys.readouterr().err == (f"error: count: {says}\n" if says else "")


def test_other_mistakes_are_bugs():
    def bug(arguments: list[str]) -> int:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        answer(bug, [])
    with pytest.raises(UserError):
        Options("count", "").parse_args(["--to"])
