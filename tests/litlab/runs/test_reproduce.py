"""`python -m auks reproduce`."""

from litlab.runs import reproduce
from litlab.runs.provenance import versions
from tests.litlab.runs.make import write_run

FIT = "python -m auks fit --config lightning_logs/tiny/version_0/config.yaml"


def test_the_commands_bring_back_commit_and_changes(repository, monkeypatch, capsys):
    root, git = repository
    monkeypatch.chdir(root)
    commit = git("rev-parse", "HEAD")
    known = {**versions(), "torch": "1.0", "gone": "3.2"}
    later = [{"commit": commit}, {"commit": "d" * 40}]
    changes = {"file": "uncommitted.diff"}
    run = write_run(
        root / "lightning_logs", "tiny/version_0", versions=known, commit=commit, continued=later, uncommitted=changes
    )
    assert reproduce.main(["tiny"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"# it was continued on commit {'d' * 40}",
        f"# torch is {versions()['torch']} here, the run used 1.0",
        "# gone is not installed here, the run used 3.2",
        f"git checkout {commit}",
        f"git apply {run.path / 'uncommitted.diff'}",
        FIT,
    ]
