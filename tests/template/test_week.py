"""A week of a team that has made this repository its own, by the commands of docs/updates.md."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clone import Clone, clone_tree
from tests.conftest import ROOT

[UPDATE] = re.findall(
    r"## Updating\n.*?```bash\n(.*?)```", (ROOT / "docs/updates.md").read_text(), re.DOTALL
)
SHORT = "--trainer.max_epochs 1 --trainer.limit_train_batches 2"


@pytest.fixture
def upstream(tmp_path) -> Clone:
    """This tree, whose package is called lab: the tests' own is importable under its name."""
    clone = clone_tree(tmp_path / "upstream")
    clone.call("project rename lab")
    clone.commit()
    return clone


def test_a_team_makes_it_its_own_and_is_updated(upstream, tmp_path):
    upstream.shell(f"git clone --quiet . {tmp_path}/team")
    team = Clone(tmp_path / "team")

    # It writes an experiment, edits it, deletes the examples, and takes a name of its own
    team.call("lab new mine --like linear")
    team.replace("configs/mine.yaml", "lr: 0.2", "lr: 0.003")
    shutil.rmtree(team.root / "src/examples")
    team.commit()
    team.call("lab rename acme")
    team.commit()
    team.call(f"acme fit --config configs/mine.yaml {SHORT}")

    # Upstream adds a file, deletes one, and changes a page; the team had changed litlab
    (upstream.root / "src/litlab/util/fresh.py").write_text("NEW = 1\n")
    shutil.rmtree(upstream.root / "src/litlab/commands/doctor")
    upstream.replace("docs/data.md", "# Data", "# New data")
    upstream.commit()
    (team.root / "src/litlab/util/patch.py").touch()
    (team.root / "docs/own").mkdir()
    (team.root / "docs/own/page.md").write_text("# Ours\n")
    team.commit()
    team.call("acme rename lab")
    team.commit()
    team.shell(UPDATE.replace("URL", str(upstream.root)))
    team.call("lab rename acme")
    team.commit()
    assert (team.root / "src/litlab/util/fresh.py").is_file()
    assert not (team.root / "src/litlab/util/patch.py").exists()
    assert not [*(team.root / "src/litlab/commands/doctor").glob("*.py")]
    assert (team.root / "docs/data.md").read_text().startswith("# New data")
    assert (team.root / "docs/own/page.md").is_file()
    assert not (team.root / "src/examples").exists()
    config = team.call("acme fit --config configs/mine.yaml --print_config")
    assert "acme.models.mine.Mine" in config
    assert "lr: 0.003" in config


def test_two_people_share_a_branch_and_a_folder_of_runs(upstream, tmp_path):
    upstream.call("lab new mine --like linear")
    upstream.commit()
    people = [Clone(tmp_path / name) for name in ("ann", "bob")]
    for clone, rate in zip(people, ("0.01", "0.02"), strict=True):
        upstream.shell(f"git clone --quiet . {clone.root}")
        clone.replace("configs/mine.yaml", "lr: 0.2", f"lr: {rate}")
        clone.commit()
        (clone.root / "lightning_logs").symlink_to(tmp_path / "runs")
    (tmp_path / "runs").mkdir()

    # Both train at once: each has a run of its own, and sees the other's
    fit = f"fit --config configs/mine.yaml {SHORT}"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda clone: clone.call(f"lab {fit}"), people))
    for clone in people:
        assert len(re.findall(r"mine/version_[01] +finished", clone.call("lab runs"))) == 2
    ann, bob = people
    compared = ann.call("lab compare mine/version_0 mine/version_1")
    assert re.search(r"lr +0\.0[12] +0\.0[12]", compared)

    # What a merge could not decide is refused until somebody has
    ann.shell(f"git pull --quiet --no-rebase {bob.root} main || true")
    refused = ann.call(f"lab {fit}", code=2)
    assert re.fullmatch(r"error: configs/mine\.yaml: .*conflict.*\n", refused)
    ann.shell("git checkout --quiet --theirs configs/mine.yaml")
    ann.commit()
    ann.call(f"lab {fit}")
