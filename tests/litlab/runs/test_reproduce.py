"""`python -m auks reproduce`."""

import pytest

from litlab.runs import reproduce
from litlab.runs.provenance import versions, work_tree
from tests.litlab.runs.make import write_run

FIT = "python -m auks fit --config lightning_logs/tiny/version_0/config.yaml"


@pytest.fixture
def make(repository, monkeypatch):
    """Records a run of the repository's code as it is."""
    root, _ = repository
    monkeypatch.chdir(root)

    def record(**further):
        commit, diff = work_tree(root / "src")
        changes = {"file": "uncommitted.diff"} if diff else None
        origin = {"versions": versions(), "commit": commit, "dirty": bool(diff), "uncommitted": changes}
        run = write_run(root / "lightning_logs", "tiny/version_0", **{**origin, **further})
        (run.path / "uncommitted.diff").write_text(diff)
        return run

    return record


@pytest.fixture
def lines(capsys):
    def run() -> list[str]:
        assert reproduce.main(["tiny"]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_the_commands_bring_back_commit_and_changes(make, lines, repository):
    root, git = repository
    (root / ".gitignore").write_text("data/\nlightning_logs/\n")
    git("commit", "--quiet", "--all", "--message", "ignore")
    commit = git("rev-parse", "HEAD")
    (root / "src" / "model.py").write_text("width = 7\n")
    (root / "src" / "new.py").write_text("depth = 3\n")
    run = make()
    assert lines() == [f"git checkout {commit}", f"git apply {run.path / 'uncommitted.diff'}", FIT]


def test_what_is_not_the_same_is_said(make, lines, repository):
    commit = repository[1]("rev-parse", "HEAD")
    make(versions={**versions(), "torch": "1.0", "gone": "3.2"}, continued=[{"commit": commit}, {"commit": "d" * 40}])
    assert lines() == [
        f"# it was continued on commit {'d' * 40}",
        f"# torch is {versions()['torch']} here, the run used 1.0",
        "# gone is not installed here, the run used 3.2",
        f"git checkout {commit}",
        FIT,
    ]
