"""Runs of somebody else: what their files can't do to a terminal, to memory, or to files elsewhere."""

import json
import os
from pathlib import Path

import pytest

from litlab.errors import UserError, printable
from litlab.runs import compare, reproduce, table
from litlab.runs.folder import RunFolder, write_text
from litlab.runs.settings import read_config
from litlab.util.options import answer
from tests.litlab.runs.make import write, write_run

FILES = ("config.yaml", "status.json", "metrics.json", "repeat.json")
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    write_run(Path("lightning_logs"), "mine/version_0", hours_ago=9)
    return write_run(Path("lightning_logs"), "foreign/version_0")


@pytest.fixture
def light(capsys):
    """What the light commands print of both runs; none of them may hang, or end with a traceback."""

    def run_commands() -> str:
        for main, *arguments in (
            (table.main,), (table.main, "--json"), (compare.main, "foreign/version_0", "mine"),
            (reproduce.main, "foreign/version_0"),
        ):  # fmt: skip
            assert answer(main, arguments) in (0, 2)
        return "".join(capsys.readouterr())

    return run_commands


@pytest.mark.parametrize("letters", ["\x1b[31mred\x1b[0m", "a\rb", "\u202e", "\ud83d"])
def test_nothing_that_is_printed_controls_the_terminal(run, light, letters):
    text = printable(f"before {letters} after")
    assert text.isprintable()
    assert text.startswith("before ")
    assert "\n" not in str(UserError(f"a\n{letters}"))
    write(run.status, status=f"x{letters}", reason=letters, started="now", host=letters)
    best = {"monitor": f"val/{letters}", "mode": "max", "value": 1.0, "checkpoint": letters}
    write(run.metrics, best=best, test={f"test/{letters}": 0.5}, val={letters: 0.25})
    write(run.provenance, commit=f"abc{letters}", versions={letters: letters}, seed=letters, data={letters: letters},
          uncommitted={"file": letters}, why_no_commit=letters)  # fmt: skip
    run.config.write_text(json.dumps({"model": letters, f"key{letters}": letters}))
    printed = light()
    assert "foreign/version_0" in printed
    assert all(letter.isprintable() or letter == "\n" for letter in printed), ascii(printed)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link"])
def test_a_file_that_is_no_regular_file_is_refused_and_nothing_hangs(run, light, file, kind):
    path = run.path / file
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "link": "../../mine/version_0/config.yaml"}[kind])
    assert "mine/version_0" in light()
    if file == "config.yaml":
        with pytest.raises(UserError, match=r"config\.yaml"):
            read_config(path)


@pytest.mark.parametrize(
    "text",
    [BOMB, "a: &a [*a]", "a: &a {b: 1}\nc: {<<: *a}", "[" * 200_000, "- " * 9_999, "a: 1\na: 2",
     "", "\x00", "a: !!python/object/apply:os.system [touch x]"],
)  # fmt: skip
def test_a_config_that_no_run_writes_is_refused_in_one_line(run, light, text):
    run.config.write_text(text)
    with pytest.raises(UserError) as error:
        read_config(run.config)
    assert str(error.value).startswith(f"{run.config}")
    assert len(str(error.value)) < 400
    light()
    assert not Path("x").exists()


def test_nothing_is_written_through_a_link(run, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    run.metrics.unlink()
    run.metrics.symlink_to(victim / "file")
    (run.path / "report").symlink_to(victim)
    for path in (run.metrics, run.path / "report/deep/index.html"):
        with pytest.raises(UserError, match="it is a link, and nothing is written through links; remove it"):
            write_text(path, "x")
    assert [file.name for file in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "mine"


def test_commands_to_type_hold_nothing_of_a_shell(run, capsys):
    for commit, file, says in (
        ("--upload-pack=x; rm -rf ~", "../../../x", ""),
        ("abcdef1", "../../../$(x)", f"git apply '{run.path.absolute()}/$(x)'"),
    ):
        write(run.provenance, commit=commit, uncommitted={"file": file})
        answer(reproduce.main, ["foreign"])
        printed = capsys.readouterr().out
        assert says in printed
        assert "rm -rf" not in printed.partition("(")[0]
