"""The files of a run, and finding a run by what the user types."""

import re

import pytest

from litlab.errors import UserError
from litlab.runs.find import find_resumable, find_run
from litlab.runs.folder import RunFolder, create_run
from tests.litlab.runs.make import write, write_group, write_run

RUNS = {
    "last": "cifar/version_0",
    "cifar": "cifar/version_0",
    "night": "night/text/version_0",
    "cifar/version_10": "cifar/version_10",
    "cifar/version_10/checkpoints/last.ckpt": "cifar/version_10",
    "cifar/seeds_0": "cifar/seeds_0/seed_2/version_0",
    "cifar/seeds_0/seed_1": "cifar/seeds_0/seed_1/version_0",
}
HINTS = {
    "cifra": "cifra: there is no such run; did you mean 'cifar'?",
    "lightning_logs/nigth/text": "did you mean 'night/text'",
    "zzz": "; the experiments in lightning_logs are cifar, cifar/wide, night/text",
    "x" * 5000: "there is no such run",
    "cifar/version_11": "there is no such run",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Experiments, one in the folder of another; the newest run is not the one with the highest
    number.
    """
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "lightning_logs"
    write_run(root, "cifar/version_0", hours_ago=1)
    write_run(root, "cifar/version_10", hours_ago=5)
    write_run(root, "cifar/wide/version_0", hours_ago=9, best=0.99)
    write_group(root, "cifar/seeds_0", [0.8, 0.95, 0.7], hours_ago=4)
    write_run(root, "night/text/version_0", hours_ago=3, best=0.99)
    (root / "cifar/version_11").mkdir()  # of a fit that failed before it had its data
    return root


def test_finds_a_run_by_what_is_typed(root):
    for text, name in RUNS.items():
        assert find_run(text).name == name, text
    assert find_run("cifar/seeds_0", groups=True).path.resolve() == root / "cifar/seeds_0"


@pytest.mark.parametrize("text", HINTS)
def test_says_what_is_near_to_a_run_that_is_not_there(root, text):
    with pytest.raises(UserError, match=re.escape(HINTS[text])):
        find_run(text)


def test_the_newest_run_that_can_be_resumed(root):
    (root / "cifar/version_0/checkpoints/last.ckpt").unlink()
    run = find_resumable(root, "cifar")
    assert run is not None
    assert run.name == "cifar/version_10"
    assert find_resumable(root, "night") is None  # another experiment


@pytest.mark.parametrize(
    "name", ["", "a/../b", "/a", "last", "a/version_3", "~me", "$HOME", "a\nb"]
)
def test_names_that_no_experiment_can_have(tmp_path, name):
    with pytest.raises(UserError, match="experiment: "):
        create_run(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_run_is_running_while_its_lock_is_held(tmp_path):
    run = create_run(tmp_path / "lightning_logs", "mine")
    write(run.status, status="running")
    with RunFolder(run.path).lock():
        assert run.read_state()["status"] == "running"
    assert run.read_state()["status"] == "killed"
    write(run.status, status="finished")
    assert run.read_state()["status"] == "finished"
