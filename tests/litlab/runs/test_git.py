"""The commit, and uncommitted changes that `git apply` brings back."""

from litlab.runs import reproduce
from litlab.runs.git import read_work_tree
from litlab.runs.provenance import list_versions
from tests.litlab.runs.make import write_run


def test_changes_and_new_sources_come_back_by_git_apply(repository, tmp_path):
    root, shell = repository.root, repository.shell
    (root / "src/model.py").write_text("width = 2\npassword = 'as it is'\n")
    (root / "src/new.py").write_text("depth = 3\n")
    (root / "notes.txt").write_text("mine\n")
    before = shell("git status --porcelain")
    commit, diff = read_work_tree(root / "src")
    assert f"{commit}\n" == shell("git rev-parse HEAD")
    assert shell("git status --porcelain") == before  # the index is as it was
    shell("git stash --include-untracked")
    assert not read_work_tree(root)[1]
    (tmp_path / "diff").write_text(diff)
    shell("git apply ../diff")
    assert (root / "src/model.py").read_text() == "width = 2\npassword = 'as it is'\n"
    assert (root / "src/new.py").read_text() == "depth = 3\n"
    assert not (root / "notes.txt").exists()
    for setting in ("diff.noprefix true", "color.ui always", "core.abbrev 20"):
        shell(f"git config {setting}")
    assert read_work_tree(root)[1] == diff  # whatever the user has set


def test_code_without_a_commit(repository, tmp_path, monkeypatch):
    root = repository.root
    installed = root / "data/site-packages"  # in a repository that does not hold it
    installed.mkdir(parents=True)
    assert read_work_tree(tmp_path) == read_work_tree(installed) == (None, "")
    monkeypatch.setenv("PATH", "")
    assert read_work_tree(root) == (None, "")


def test_the_commands_that_bring_back_commit_and_changes(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository.root)
    commit = repository.shell("git rev-parse HEAD").strip()
    run = write_run(
        repository.root / "lightning_logs", "tiny/version_0", commit=commit,
        versions={**list_versions(), "torch": "1.0", "gone": "3.2"},
        continued=[{"commit": commit}, {"commit": "d" * 40}],
        uncommitted={"file": "../../x $(y).diff"},
    )  # fmt: skip
    assert reproduce.main(["tiny"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"# it was continued on commit {'d' * 40}",
        f"# torch is {list_versions()['torch']} here, the run used 1.0",
        "# gone is not installed here, the run used 3.2",
        f"git checkout {commit}",
        f"git apply '{run.path / 'x $(y).diff'}'",
        "python -m auks fit --config lightning_logs/tiny/version_0/config.yaml",
    ]
