"""Runs of somebody else: what their files can't do to a terminal, or to a shell."""

from pathlib import Path

import pytest

from litlab.errors import UserError
from litlab.runs import compare, reproduce, table
from litlab.runs.folder import RunFolder
from tests.litlab.runs.make import write, write_run


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return write_run(Path("lightning_logs"), "foreign/version_0")


@pytest.mark.parametrize("letters", ["\x1b[31mred\x1b[0m", "a\rb", "\u202e"])
def test_nothing_that_is_printed_controls_the_terminal(run, capsys, letters):
    assert str(UserError(f"a\n{letters}")).isprintable()
    write(run.status, status=f"x{letters}", reason=letters, started="now")
    best = {"monitor": f"val/{letters}", "mode": "max", "value": 1.0, "checkpoint": letters}
    write(run.metrics, best=best, test={f"test/{letters}": 0.5}, val={letters: 0.25})
    write(run.provenance, commit="abc", versions={letters: letters}, data={letters: letters},
          uncommitted={"file": letters})  # fmt: skip
    write(run.config, model=letters, **{f"key{letters}": letters})
    write_run(Path("lightning_logs"), "mine/version_0")
    table.main([])
    table.main(["--json"])
    compare.main(["foreign", "mine"])
    reproduce.main(["foreign"])
    printed = capsys.readouterr().out
    assert printed.count("foreign/version_0") >= 4
    assert all(letter.isprintable() or letter == "\n" for letter in printed), ascii(printed)


def test_commands_to_type_hold_nothing_of_a_shell(run, capsys):
    write(run.provenance, commit="abcdef1", uncommitted={"file": "../../../$(x)"})
    reproduce.main(["foreign"])
    assert f"git apply '{run.path.absolute()}/$(x)'" in capsys.readouterr().out
    write(run.provenance, commit="--upload-pack=x; rm -rf ~")
    with pytest.raises(UserError, match="it is not known from which commit"):
        reproduce.main(["foreign"])
