"""The table of commands, and a team's own."""

import pytest

from tests.litlab.runs.conftest import error

GREET = """
def main(arguments):
    print("hello", *arguments)
    if not arguments:
        raise KeyboardInterrupt
    return 3
"""


@pytest.fixture(scope="module")
def team() -> str:
    return "coots"


@pytest.fixture(autouse=True)
def coots(tmp_path, monkeypatch) -> None:
    """A team with one command, which is one line in a table and a function."""
    folder = tmp_path / "src/coots/commands"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").write_text(
        'COMMANDS = {"greet": ("coots.commands.greet:main", "say hello")}\n'
    )
    (folder / "greet.py").write_text(GREET)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))


def test_a_command_of_the_team(run):
    screen = run("--help").out
    assert "  greet       say hello\n" in screen
    for verb in ("fit", "validate", "test", "predict"):
        assert f"\n  {verb} " in screen
    done = run("greet there")
    assert (done.code, done.out) == (3, "hello there\n")
    assert run("greet").code == 130, "as after Ctrl-C"


def test_a_mistyped_command_names_the_nearest(run):
    line = "error: great: there is no such command; did you mean 'greet'?"
    assert error(run("great")) == line
