"""bf16-true and 16-true: what stays in float32, and that runs resume and are tested with the same types."""

from itertools import pairwise

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from litlab.callbacks import EMA
from litlab.cli.precision import ExperimentTrainer, HalfWithFloat32Norms
from tests.litlab.conftest import CONFIGS

IMAGES = CONFIGS / "images.yaml"


class Scale(nn.Module):
    """Has no norm's name, so its weight is converted."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class NormedBlock(nn.Module):
    """Has a norm's name, but nothing of its own."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)


@pytest.mark.parametrize(("precision", "half"), [("bf16-true", torch.bfloat16), ("16-true", torch.float16)])
def test_norms_keep_their_weights_statistics_and_arithmetic(precision, half):
    network = nn.ModuleDict({
        "conv": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "scale": Scale(), "block": NormedBlock(),
    })  # fmt: skip
    network["norm"].running_mean.fill_(1 / 3)  # which bfloat16 does not have
    plugin = HalfWithFloat32Norms(precision)
    plugin.convert_module(network)
    kinds = {name: value.dtype for name, value in network.state_dict().items() if value.is_floating_point()}
    assert {name for name, kind in kinds.items() if kind == torch.float32} == {
        name for name in kinds if name.startswith(("norm.", "block.norm."))
    }
    assert set(kinds.values()) == {torch.float32, half}
    assert network["norm"].running_mean[0] == torch.tensor(1 / 3)
    seen = []
    network["norm"].register_forward_hook(lambda norm, inputs, output: seen.append(inputs[0].dtype))
    assert network["norm"](network["conv"](torch.randn(2, 3, 5, 5, dtype=half))).dtype == half
    assert seen == [torch.float32]
    plugin.teardown()
    assert network["norm"](torch.randn(2, 4, 5, 5)).dtype == torch.float32


def test_a_batch_norm_keeps_moving():
    """What a batch adds to the mean, a share of 0.001, is less than the last bit of bfloat16."""
    moved = {}
    for plugin in (HalfWithFloat32Norms("bf16-true"), None):
        norm = nn.BatchNorm1d(2, momentum=1e-3)
        norm.running_mean.fill_(1.0)
        network = nn.Sequential(norm)
        plugin.convert_module(network) if plugin else network.to(torch.bfloat16)
        for _ in range(20):
            network(torch.full((8, 2), 2.0, dtype=torch.bfloat16) + torch.randn(8, 2).bfloat16())
        moved[plugin is not None] = norm.running_mean.mean().item()
    assert moved[True] == pytest.approx(2 - 0.999**20, abs=5e-3)
    assert moved[False] == 1.0


def types(state):
    return {name: value.dtype for name, value in state.items()}


def test_a_run_resumes_and_is_tested_with_the_same_numbers(run, short, tmp_path):
    """The norms and, of all tensors, the average that is validated and tested stay in float32."""
    flags = [*short(IMAGES), "--trainer.precision=bf16-true", "--ema.decay=0.9", "--model.schedule=null"]
    flags += ["--model.optimizer=torch.optim.AdamW", "--model.optimizer.lr=0.01"]
    whole = run("fit", "--config", IMAGES, *flags, "--experiment=whole", "--trainer.max_epochs=2")
    assert whole.code == 0, whole.err
    assert run("fit", "--config", IMAGES, *flags, "--experiment=parts").code == 0
    resumed = run("fit", "--resume", "parts/version_0", "--trainer.max_epochs=2")
    assert resumed.code == 0, resumed.err
    one, other = (
        torch.load(tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt", weights_only=True)
        for name in ("whole", "parts")
    )
    for key in ("state_dict", "current_model_state"):
        assert types(one[key]) == types(other[key])
        assert all(torch.equal(value, other[key][name]) for name, value in one[key].items())
    assert torch.bfloat16 in types(one["current_model_state"]).values()
    assert torch.bfloat16 not in types(one["state_dict"]).values()
    states = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (one, other)]
    for number, state in states[0].items():
        assert types(state) == types(states[1][number])
        assert all(torch.equal(value, states[1][number][name]) for name, value in state.items())
    said = [line for line in whole.out.splitlines() if "test/" in line]
    again = run("test", "--run", "whole/version_0", "--ckpt_path", "best")
    assert again.code == 0, again.err
    assert said[0].split() == next(line for line in again.out.splitlines() if said[0].split()[0] in line).split()


class Seen(Callback):
    """Notes the average before and after each validation."""

    def __init__(self, ema):
        self.ema, self.notes = ema, []

    def on_validation_start(self, *anything):
        if self.ema.average is not None:
            self.notes.append({name: value.clone() for name, value in self.ema.average.items()})

    on_validation_end = on_validation_start


def test_a_validation_leaves_the_average_as_it_was(tmp_path):
    from tests.litlab.callbacks.tiny import Tiny, TinyData

    ema = EMA(0.9)
    seen = Seen(ema)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = ExperimentTrainer(precision="bf16-true", accelerator="cpu", max_epochs=2, callbacks=[ema, seen], **quiet)
    trainer.fit(Tiny(), TinyData())
    notes = seen.notes[2:]  # after the sanity check
    assert any(value.dtype == torch.float32 and not torch.equal(value, value.bfloat16().float())
               for value in notes[-1].values())  # fmt: skip
    for before, after in list(pairwise(notes))[::2]:
        assert all(torch.equal(value, after[name]) for name, value in before.items())
