"""`fit --plan` of every shipped config: tables without a download or a run."""

import shlex

import pytest

from litlab.data import public
from litlab.planning import plan
from litlab.planning.batch import training_batch, without_download
from litlab.planning.layout import Layout
from tests.conftest import CONFIGS, PACKAGE
from tests.project.overlays import EXPERIMENTS

# Which of the shipped experiments a pipeline can have.
STAGED = {"cifar", "cifar_vgg", "mlp"}
WHOLE = {"forecast", "forecast_ensemble", "forecast_small", "linear", "maml", "tabular", "text", "transfer"}


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_config_plans(run, short, tmp_path, monkeypatch, config):
    shown = []
    monkeypatch.setattr(plan, "show", lambda own, others, *_: shown.append([own, *others]))
    monkeypatch.setattr(plan, "others", lambda *_: [Layout("sharded"), Layout("pipeline")])
    done = run("fit", "--config", config, *short(config), "--plan", "1x2")
    assert done.code == 0, done.err
    ((ddp, sharded, pipeline),) = shown
    assert min(ddp.total, ddp.sent["all-reduce", "gradients"]) > 0
    assert sharded.refused or 0 < sharded.highest["gradients"] <= ddp.highest["gradients"]
    assert not (pipeline.refused and config.stem in STAGED)
    assert pipeline.refused or config.stem not in WHOLE
    assert not (tmp_path / "lightning_logs").exists()


def test_the_first_that_fits_is_a_command_line(run, short, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "others", lambda *_: [Layout("ddp", checkpointing=True), Layout("sharded")])
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    small = ["--model.embed_dim=64", "--model.num_layers=2", "--data.batch_size=8", "--trainer.precision=32-true"]
    asked = ["--plan", "1x2", "--plan_memory=0.027"]
    done = run("fit", "--config", config, *short(config), *small, *asked)
    *_, name, line = done.out.splitlines()
    assert name == "The first that fits: fsdp2"
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", PACKAGE, "fit"]
    assert words[-5:] == ["configs/with/fsdp2.yaml", "--trainer.devices", "2", "--trainer.num_nodes", "1"]
    again = run(*words[3:], *asked)
    assert again.code == 0, again.err
    assert "strategy: fsdp2" in again.out
    assert "The first that fits" not in again.out


def test_public_data_that_is_not_here_is_made_up(monkeypatch, tmp_path):
    etth1 = pytest.importorskip("project.data.etth1", reason="this team has removed it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(public, "check_reachable", None)
    data = etth1.ETTh1Data(context_length=48, horizon=24, batch_size=8)  # without a fallback
    without_download(data)
    batch, where = training_batch(data)
    assert batch["past"].shape == (8, 48, 7)
    assert where == "from GENERATED stand-in for ETTh1.csv"
