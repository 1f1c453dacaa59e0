"""What is written for people replaces what was written so before, and nothing else."""

import os
from pathlib import Path

import pytest

from litlab.util.files import check_replaceable, record_digests, write_output
from tests.litlab.data.conftest import _folder, refusal  # noqa: F401 - a fixture
from tests.litlab.runs.conftest import error

THEIRS = b"date,predictor_a\n1,2\n"
RUN = Path("lightning_logs/series/version_0")
PREDICT = "predict --run=series --input={series}"
TEST = "test --run=series --trainer.callbacks=[Baselines]"
EXPORT = "export --run=series --format=torchscript"
COMMANDS = {
    PREDICT: RUN / "predictions.csv",
    f"{PREDICT} --output=mine.csv": Path("mine.csv"),
    f"{PREDICT} --output=mine.parquet": Path("mine.parquet"),
    TEST: RUN / "baselines.json",
    "report series": RUN / "report/index.html",
    "report series --output=mine.html": Path("mine.html"),
    EXPORT: RUN / "exported/torchscript",
    f"{EXPORT} --output=mine": Path("mine"),
    f"consolidate {RUN}/checkpoints/last.ckpt": RUN / "checkpoints/last.pt",
    "schema": Path(".vscode/schemas/fit.json"),
}


def put(kind: str, path: Path) -> None:
    """Something of the user's, or a link to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    theirs = Path("theirs").absolute()
    theirs.write_bytes(THEIRS)
    if kind == "file":
        path.write_bytes(THEIRS)
    elif kind == "folder":
        path.mkdir()
        (path / "theirs").write_bytes(THEIRS)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(theirs if kind == "link" else theirs.with_name("nothing"))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_before_they_work(run, folder, series, command):
    """Whatever it is: here a link, which is neither followed nor replaced."""
    put("link", path := COMMANDS[command])
    done = run(*command.format(series=series).split())
    assert f"{path}: something else is there" in error(done)
    assert done.out == "", "nothing was done"
    assert path.is_symlink()
    assert path.read_bytes() == THEIRS


def test_no_link_in_the_folder_of_a_run_leads_out_of_it(run, folder):
    Path("site").mkdir()
    for name, command in (("report", "report series"), ("exported", EXPORT)):
        (RUN / name).symlink_to(Path("site").absolute())
        assert "is not a folder that you can write to" in error(run(*command.split()))
    assert run("report series --output=site/index.html").code == 0, "the user's own may"


@pytest.mark.parametrize("command", [PREDICT, TEST, "report series"])
def test_what_was_written_is_replaced_until_it_is_edited(run, folder, series, command):
    path, words = COMMANDS[command], command.format(series=series).split()
    for _ in range(2):
        run(*words).check()
    with path.open("a") as stream:
        stream.write("mine\n")
    edited = path.read_bytes()
    assert f"{path}: something else is there, or it has been changed" in error(run(*words))
    assert path.read_bytes() == edited


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link", "pipe"])
def test_whatever_is_there_is_kept(kind):
    path = Path("page.html")
    for _ in range(2):
        write_output(path, "ours")
    path.unlink()
    put(kind, path)
    assert refusal(write_output, path, "ours").startswith("page.html: something else is there")
    assert Path("theirs").read_bytes() == THEIRS
    assert not Path("nothing").exists()


def test_a_folder_is_all_that_is_in_it(tmp_path):
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "graph").write_text("ours")
    record_digests(tmp_path)
    check_replaceable(tmp_path)
    (deep / "notes").write_text("mine")
    assert "something else is there" in refusal(check_replaceable, tmp_path)


@pytest.mark.parametrize("kind", ["file", "dangling link", "pipe"])
def test_a_folder_that_can_not_be_written_to_is_refused_before(kind):
    put(kind, Path("no/folder"))
    line = refusal(check_replaceable, Path("no/folder/deep/page.html"))
    assert "folder is not a folder that you can write to" in line
