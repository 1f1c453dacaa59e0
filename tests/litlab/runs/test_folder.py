"""The files of a run, and finding a run by what the user types."""

import json
import os
import socket
import subprocess
import sys
from datetime import datetime

import pytest

from litlab.errors import UserError
from litlab.runs.find import all_runs, find_run
from litlab.runs.folder import RunFolder, read_json, write_json
from tests.litlab.runs.make import write, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two experiments, one in a folder of its own; the newest run is not the one with the highest number."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "lightning_logs"
    write_run(root, "cifar/version_0", hours_ago=1)
    write_run(root, "cifar/version_10", hours_ago=5)
    write_run(root, "night/text/version_0", hours_ago=3)
    (root / "cifar" / "version_11").mkdir()  # of a fit that failed before it had its data
    return root


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("last", "cifar/version_0"),
        ("cifar", "cifar/version_0"),
        ("lightning_logs/cifar", "cifar/version_0"),
        ("lightning_logs/cifar/", "cifar/version_0"),
        ("night", "night/text/version_0"),
        ("night/text", "night/text/version_0"),
        ("cifar/version_10", "cifar/version_10"),
        ("lightning_logs/cifar/version_10", "cifar/version_10"),
        ("lightning_logs/cifar/version_10/checkpoints/last.ckpt", "cifar/version_10"),
        ("cifar/version_10/checkpoints/last.ckpt", "cifar/version_10"),
    ],
)
def test_finds_a_run_by_what_is_typed(root, text, found):
    run = find_run(text)
    assert run.path.resolve() == root / found
    assert run.name == found


def test_an_experiment_is_its_own_runs_not_those_of_another_in_its_folder(root):
    write_run(root, "cifar/wide/version_0", hours_ago=0)
    assert find_run("cifar").name == "cifar/version_0"


def test_finds_a_run_anywhere_by_its_folder(root, tmp_path):
    run = write_run(tmp_path / "elsewhere", "mine/version_3")
    assert find_run(str(run.path)).path == run.path
    assert find_run("mine", tmp_path / "elsewhere").path == run.path
    assert run.name == "mine/version_3"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cifra", "did you mean 'cifar'"),
        ("cifar/version_1", "'cifar/version_10'"),
        ("lightning_logs/nigth/text", "did you mean 'night/text'"),
        ("zzz", "the experiments in lightning_logs are cifar, night/text"),
        ("", "there is no run ''"),
        (".", "there is no run '.': the experiments in lightning_logs are cifar, night/text;"),
        (
            "lightning_logs",
            "there is no run 'lightning_logs': the experiments in lightning_logs are cifar, night/text;",
        ),
        ("..", "the experiments in lightning_logs are cifar, night/text;"),
        ("./lightning_logs/.", "the experiments in lightning_logs are cifar, night/text;"),
        ("/", "the experiments in lightning_logs are cifar, night/text;"),
        ("day", "day holds several experiments; give one of lightning_logs/day/a, lightning_logs/day/b/c."),
        ("x" * 5000, "there is no run"),
        ("a\0b", "there is no run"),
        ("loose.ckpt", "is in no run folder"),
        ("cifar/version_11", "there is no run"),
    ],
)
def test_says_what_is_near_to_a_run_that_is_not_there(root, tmp_path, text, hint):
    (tmp_path / "loose.ckpt").touch()
    if text == "day":
        for name in ("day/a/version_0", "day/b/c/version_0"):
            write_run(root, name)
    with pytest.raises(UserError) as error:
        find_run(text)
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["last", "cifar"])
def test_says_that_there_are_no_runs_yet(tmp_path, text):
    with pytest.raises(UserError, match=r"there are no runs in .* yet"):
        find_run(text, tmp_path / "lightning_logs")


def test_runs_without_a_status_are_sorted_by_the_time_of_their_config(root):
    (root / "cifar/version_0/status.json").unlink()
    os.utime(root / "cifar/version_0/config.yaml", (0, 0))
    assert [run.name for run in all_runs(root)] == ["night/text/version_0", "cifar/version_10", "cifar/version_0"]


def test_json_is_written_whole_and_without_what_json_has_no_word_for(tmp_path):
    path = tmp_path / "run" / "metrics.json"
    write_json(path, {"loss": float("nan"), "list": [1.5, float("inf")], "name": "ä"})
    assert read_json(path) == {"loss": None, "list": [1.5, None], "name": "ä"}
    json.loads(path.read_text(), parse_constant=pytest.fail)
    assert [file.name for file in path.parent.iterdir()] == ["metrics.json"]


def test_a_write_that_fails_leaves_the_old_content_and_says_so(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    write_json(path, {"old": 1})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"metrics\.json can't be written: No space left on device"):
        write_json(path, {"new": 1})
    assert read_json(path) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize("content", [b"", b'{"val": ', b"[1]", b"\xff\xfe", b"{}" + b"\0"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"status\.json is damaged"):
        read_json(path)


def test_a_run_without_the_file_has_nothing_to_say(tmp_path):
    assert read_json(tmp_path / "status.json") == {}


class TestState:
    def state(self, tmp_path, **changes) -> str:
        run = RunFolder(tmp_path)
        now = datetime.now().astimezone().isoformat()
        write(run.status, **{"status": "running", "host": socket.gethostname(), "pid": os.getpid(), "started": now, **changes})  # fmt: skip  # noqa: E501
        return run.state()["status"]

    def test_running_while_its_process_is_there(self, tmp_path):
        assert self.state(tmp_path) == "running"

    def test_killed_when_its_process_is_gone(self, tmp_path):
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        assert self.state(tmp_path, pid=process.pid) == "killed"

    def test_killed_when_its_process_is_dead_but_nobody_asked(self, tmp_path):
        process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read()  # at its end the process is over, but its parent has not waited for it
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert self.state(tmp_path, pid=process.pid) == "killed"
        process.communicate()

    def test_killed_after_the_fit(self, tmp_path):
        assert self.state(tmp_path, pid=2**22 + 1, test="pending") == "killed"
        assert "before its test was done" in RunFolder(tmp_path).state()["reason"]

    def test_killed_when_a_later_process_has_its_number(self, tmp_path):
        assert self.state(tmp_path, started="2020-01-01T00:00:00+00:00") == "killed"

    def test_unsure_on_another_host(self, tmp_path):
        assert self.state(tmp_path, host="another", pid=1) == "running?"

    def test_an_end_stands_although_the_process_is_gone(self, tmp_path):
        assert self.state(tmp_path, status="finished", pid=2**22 + 1) == "finished"
