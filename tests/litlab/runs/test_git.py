"""The commit, and uncommitted changes that `git apply` brings back."""

import subprocess

from litlab.runs.provenance import work_tree


def test_changes_and_new_sources_come_back_by_git_apply(repository):
    root, git = repository
    (root / "src" / "model.py").write_text("width = 2\npassword = 'as it is'\n")
    (root / "src" / "new.py").write_text("depth = 3\n")
    (root / "notes.txt").write_text("mine\n")
    (root / "data").mkdir()
    (root / "data" / "ignored.yaml").touch()
    before = git("status", "--porcelain")
    code = work_tree(root / "src")
    assert git("status", "--porcelain") == before  # the index is as it was
    git("stash", "--include-untracked")
    assert not work_tree(root).diff
    subprocess.run(["git", "apply", "-"], cwd=root, input=code.diff, text=True, check=True)
    assert (root / "src" / "model.py").read_text() == "width = 2\npassword = 'as it is'\n"
    assert (root / "src" / "new.py").read_text() == "depth = 3\n"
    assert not (root / "notes.txt").exists()
    for name, value in {"diff.noprefix": "true", "color.ui": "always", "core.abbrev": "20"}.items():
        git("config", name, value)
    assert work_tree(root).diff == code.diff  # whatever the user has set


def test_code_without_a_commit_says_why(repository, tmp_path, monkeypatch):
    root, _ = repository
    assert "not a git repository" in work_tree(tmp_path).problem
    installed = root / "data" / "site-packages"  # in a repository that does not hold it
    installed.mkdir(parents=True)
    (installed / "model.py").touch()
    assert "not under version control" in work_tree(installed).problem
    monkeypatch.setenv("PATH", "")
    assert "git can't be run" in work_tree(root).problem
