"""What the light verbs share: how they end, and what they say of wrong options."""

import pytest

from litlab.util.options import Options, answer


def count(arguments: list[str]) -> int:
    options = Options("count", "Count things.")
    options.add_argument("--to", type=int)
    to = options.parse_args(arguments).to
    if to == 0:
        raise KeyboardInterrupt
    if to == 1:
        raise ValueError("a bug")
    return 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--to", "3"], 0, ""),
        (["--to", "0"], 130, ""),
        (["--t", "3"], 2, "error: count: unrecognized arguments: --t 3\n"),
    ],
)
def test_how_a_verb_ends(capsys, arguments, code, says):
    assert answer(count, arguments) == code
    assert capsys.readouterr().err == says
    with pytest.raises(ValueError, match="a bug"):
        answer(count, ["--to", "1"])
