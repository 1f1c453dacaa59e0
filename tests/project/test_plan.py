"""`fit --plan` of every shipped config: tables of all strategies, without a download or a run."""

import pytest

from litlab.planning import plan
from tests.project.overlays import EXPERIMENTS


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_config_plans(run, short, tmp_path, monkeypatch, config):
    shown = []
    monkeypatch.setattr(plan, "show", lambda own, others, *_: shown.append([own, *others]))
    done = run("fit", "--config", config, *short(config), "--plan", "1x2")
    assert done.code == 0, done.err
    (estimates,) = shown
    ddp, sharded = estimates[0], next(one for one in estimates if one.layout.kind == "sharded")
    assert min(ddp.total, ddp.sent["all-reduce", "gradients"]) > 0
    assert sharded.refused or 0 < sharded.highest["gradients"] <= ddp.highest["gradients"]
    assert not (tmp_path / "lightning_logs").exists()
