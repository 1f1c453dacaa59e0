"""`fit --plan` of every shipped config, and of overlays that change a step."""

import shlex

import pytest

from litlab.commands.plan import plan
from litlab.commands.plan.estimate import Layout
from tests.conftest import CONFIGS, PACKAGE
from tests.template.shipped import EXPERIMENTS

OVERLAYS = ("bf16_true", "muon", "optimizer_in_backward", "qat", "swa", "ensemble")


@pytest.mark.parametrize(
    ("config", "overlay"),
    [*((path, None) for path in EXPERIMENTS), *((CONFIGS / "cifar.yaml", name) for name in OVERLAYS)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_every_config_plans(run, short, tmp_path, monkeypatch, config, overlay):
    shown = []
    monkeypatch.setattr(plan, "show", lambda ways, *_: shown.append(ways))
    flags = ["--config", CONFIGS / "with" / f"{overlay}.yaml"] if overlay else []
    done = run("fit", "--config", config, *short(config), *flags, "--plan", "1x2")
    assert done.code == 0, done.err
    ddp, *others = shown[0]
    assert ddp.memory.total() > 0
    assert (ddp.sent > 0) == (overlay != "optimizer_in_backward")  # which keeps no gradients
    sharded = next(way for way in others if way.layout == Layout("fsdp2"))
    assert 0 < sharded.memory["parameters"] <= ddp.memory["parameters"] / 2
    assert not (tmp_path / "lightning_logs").exists()


def test_the_first_that_fits_is_a_command_line(run, short, tmp_path):
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    small = ["--model.embed_dim=64", "--model.num_layers=2", "--data.batch_size=8", "--trainer.precision=32-true"]
    asked = ["--plan", "1x2", "--plan_memory=0.03"]
    done = run("fit", "--config", config, *short(config), *small, *asked)
    *_, name, line = done.out.splitlines()
    assert name == "The first that fits: fsdp2"
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", PACKAGE, "fit"]
    assert words[-3:] == ["--config=configs/with/fsdp2.yaml", "--trainer.devices=2", "--trainer.num_nodes=1"]
    again = run(*words[3:], *asked)
    assert again.code == 0, again.err
    assert "The first that fits" not in again.out
