"""`fit --plan` of every shipped config: tables without a download or a run."""

import shlex

import pytest

from litlab.commands.plan import plan
from litlab.commands.plan.estimate import Layout
from litlab.data import public
from tests.conftest import CONFIGS, PACKAGE
from tests.template.shipped import EXPERIMENTS


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_config_plans(run, short, tmp_path, monkeypatch, config):
    shown = []
    monkeypatch.setattr(plan, "show", lambda ways, *_: shown.append(ways))
    done = run("fit", "--config", config, *short(config), "--plan", "1x2")
    assert done.code == 0, done.err
    ddp, *others = shown[0]
    assert min(ddp.memory.total(), ddp.sent) > 0
    assert all(way.refused or way.memory.total() > 0 for way in others)
    sharded = next(way for way in others if way.layout == Layout("fsdp2"))
    assert 0 < sharded.memory["parameters"] <= ddp.memory["parameters"] / 2
    assert not (tmp_path / "lightning_logs").exists()


def test_the_first_that_fits_is_a_command_line(run, short, tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    small = ["--model.embed_dim=64", "--model.num_layers=2", "--data.batch_size=8", "--trainer.precision=32-true"]
    asked = ["--plan", "1x2", "--plan_memory=0.027"]
    done = run("fit", "--config", config, *short(config), *small, *asked)
    *_, name, line = done.out.splitlines()
    assert name == "The first that fits: fsdp2"
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", PACKAGE, "fit"]
    assert words[-3:] == ["--config=configs/with/fsdp2.yaml", "--trainer.devices=2", "--trainer.num_nodes=1"]
    again = run(*words[3:], *asked)
    assert again.code == 0, again.err
    assert "The first that fits" not in again.out


@pytest.mark.parametrize("overlay", ["bf16_true", "muon", "optimizer_in_backward", "qat", "swa"])
def test_overlays_that_change_a_step(run, short, monkeypatch, overlay):
    shown = []
    monkeypatch.setattr(plan, "show", lambda ways, *_: shown.append(ways))
    config = CONFIGS / "cifar.yaml"
    flags = ["--config", CONFIGS / "with" / f"{overlay}.yaml", "--plan", "1x1"]
    done = run("fit", "--config", config, *short(config), *flags)
    assert done.code == 0, done.err
    assert shown[0][0].memory.total() > 0


def test_public_data_that_is_not_here_is_made_up(monkeypatch, tmp_path):
    etth1 = pytest.importorskip("project.data.etth1", reason="this team has removed it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(public, "check_reachable", None)
    data = etth1.ETTh1Data(context_length=48, horizon=24, batch_size=8)  # without a fallback
    assert plan.training_batch(data)["past"].shape == (8, 48, 7)
    assert data.source_name == "GENERATED stand-in for ETTh1.csv"
