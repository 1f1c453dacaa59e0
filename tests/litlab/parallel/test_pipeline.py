"""The pipeline in 2 to 4 processes, against one process."""

import json
import os
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.litlab.parallel import program
from tests.processes import Python, ranks

DROPOUT = {"model": {"dropout": 0.2}}
CLIPPED = {"steps": 6, "accumulate_grad_batches": 2, "gradient_clip_val": 0.1, "model": {"optimizer": "SGD"}}
AVERAGED = {"average": "ema", "model": {"optimizer": "SGD"}}
MEAN = {"average": "swa", "model": {"norm": "first", "optimizer": "SGD"}}  # so that one stage has no batch norm
ACCUMULATED = {**CLIPPED, "precision": "bf16-mixed"}
CASES = {
    1: {
        "one": {"steps": 50},
        "one_clip": CLIPPED,
        "one_ema": AVERAGED,
        "one_frozen": {"frozen": True},
        "one_pipeline": {"strategy": "pipeline", **ACCUMULATED},
        "one_dropout": {"strategy": "pipeline", **DROPOUT},
    },
    2: {
        "two": {"strategy": "pipeline", "steps": 50},
        "two_clip": {"strategy": "pipeline", **CLIPPED},
        "two_accumulated": {"strategy": "pipeline", **ACCUMULATED},
        "two_norm": {"strategy": "pipeline", "steps": 3, "model": {"norm": True}},
        "two_six": {"strategy": "pipeline", "steps": 6, **DROPOUT},
        "two_whole": {"strategy": "pipeline", **DROPOUT},
        "two_resumed": {"strategy": "pipeline", "resume": "two_six", **DROPOUT},
        "six": {"strategy": "pipeline", "steps": 6},
        "ema_six": {"strategy": "pipeline", "steps": 6, **AVERAGED},
        "two_ema": {"strategy": "pipeline", "resume": "ema_six", **AVERAGED},
        "two_frozen": {"strategy": "pipeline", "frozen": True},
        "two_swa": {"strategy": "pipeline", **MEAN},
    },
    4: {"four": {"strategy": "pipeline", "steps": 50}, "four_resumed": {"strategy": "pipeline", "resume": "six"}},
    0: {
        "one_resumed": {"resume": "six"},
        "two_test": {"steps": 0, "resume": "two"},
        "two_swa_test": {"steps": 0, "resume": "two_swa", "model": MEAN["model"]},
        "two_norm_test": {"steps": 0, "resume": "two_norm", "model": {"norm": True}},
    },
}

# What a network may look like: each is called in three processes, and compared with itself in one piece.
NETWORKS = """
import json, sys
from copy import deepcopy
import torch
from torch import nn
from lightning.fabric.plugins.environments import LightningEnvironment
from litlab.errors import UserError
from litlab.nn.activation_checkpointing import checkpoint_activations
from litlab.parallel.pipeline import Pipeline
from litlab.parallel.stages import Stage

torch.set_default_dtype(torch.float64)
place = LightningEnvironment()
torch.distributed.init_process_group("gloo", rank=place.local_rank(), world_size=3)
rank = torch.distributed.get_rank()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.unused = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(2, 2)
        self.blocks = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x, *, scale=1.0):
        inner = self.first(x)
        return {"logits": self.last(self.blocks(inner) + inner * scale), "class": x.argmax(1)}


class Skips(Net):
    def forward(self, x):
        outputs = [self.first(x)]
        for block in self.blocks:
            outputs.append(block(outputs[-1]))
        return self.last(outputs[1].repeat(1, 2)[:, :8] + outputs[-1])


class Loops(Net):
    def forward(self, x):
        return self.last(self.blocks(self.blocks(self.first(x))))


class Disordered(Net):  # its blocks are called in another order than they are listed in
    def forward(self, x):
        x = self.first(x)
        for n in (0, 4, 1, 2, 3):
            x = self.blocks[n](x[:, : 6 if n == 2 else 8])
        return self.last(x)


class Tied(Net):
    def __init__(self):
        super().__init__()
        self.blocks[4].weight = nn.Parameter(torch.zeros(8, 8))
        self.other = self.blocks[4]


class Members(Net):  # which all get the same
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        inner = self.first(x)
        return self.last(sum(block(inner) for block in self.blocks))


class Categories(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(5, 4)])
        self.layers = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return self.layers(torch.cat([x, *(embedding(x.argmax(1)) for embedding in self.embeddings)], 1))


class Seldom(Net):  # its gradients are summed as those of the first batch have to be
    late = False

    def forward(self, x):
        return super().forward(self.unused(x[:, :2]).repeat(1, 2) + x if self.late else x)["logits"]


class Mean(Net):
    def forward(self, x):
        return super().forward(x)["logits"].mean(0)


class Fails(Net):
    def forward(self, x):
        output = super().forward(x)["logits"]  # the last stage alone comes here
        raise ValueError("no logits")


def divided(kind, change=lambda network: None):
    network = kind()
    change(network)
    Pipeline(Stage(network, rank, 3), 4, torch.device("cpu"))
    return network


def refusal(kind, change=lambda network: None):
    try:
        divided(kind, change)(torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))
    except (UserError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def compile_blocks(network):
    for block in network.blocks:
        block.compile(backend="aot_eager")


def recompute(network):
    for block in (network.blocks[0], network.blocks[2], network.blocks[4]):
        checkpoint_activations(block)


def seldom():
    network, x = divided(Seldom), torch.ones(8, 4)
    for step in range(3):
        network.late = step == 2
        try:
            network(x).sum().backward()
        except (UserError, RuntimeError) as error:  # the first process's own, and that it's gone in the others
            return f"step {step}: {error}"


differences = {}
for name, change in {"plain": lambda _: None, "compiled": compile_blocks, "recomputed": recompute}.items():
    whole, parts = Net(), divided(Net, change)
    assert type(parts.blocks[0]) is type(parts.blocks[2])  # or each would be compiled for itself
    for rows in (8, 7, 2, 8):  # equal parts, unequal ones, fewer than four
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        outputs = [network(x, scale=0.5)["logits"] + network(2 * x)["logits"] for network in (whole, parts)]
        assert torch.equal(parts(x)["class"], x.argmax(1))
        for output in outputs:
            (output.softmax(1)[:, 0].prod() * 100).backward()  # no mean over samples
        with torch.no_grad():
            difference = (whole(x)["logits"] - parts(x)["logits"]).abs().max().item()
        differences[f"{name} {rows}"] = max(difference, (outputs[0] - outputs[1]).abs().max().item())
    pairs = list(zip(whole.named_parameters(), parts.parameters(), strict=True))
    assert sum(not mine.is_meta for _, mine in pairs) == 6 + 2  # one block and what is outside
    for (weight, theirs), mine in pairs:
        assert (theirs.grad is None) == (mine.grad is None) or mine.is_meta, weight
        if mine.grad is not None:
            differences[f"{name} {weight}"] = (theirs.grad - mine.grad).abs().max().item()

torch.manual_seed(1)
whole = nn.Sequential(*[nn.Conv2d(3, 3, 1) for _ in range(4)]).to(memory_format=torch.channels_last)
parts = divided(lambda: deepcopy(whole))
images = torch.randn(5, 3, 2, 2).to(memory_format=torch.channels_last)
differences["channels last"] = (whole(images) - parts(images)).abs().max().item()

whole, parts = Net(), divided(Net)
for frozen in (False, True):
    x = torch.ones(4, 4)
    for network in (whole, parts):
        network.first.requires_grad_(not frozen)
        network(x)["logits"].sum().backward()
    differences[f"frozen {frozen}"] = (whole.last.weight.grad - parts.last.weight.grad).abs().max().item()

refusals = {kind.__name__: refusal(kind) for kind in (Skips, Loops, Disordered, Members, Categories, Tied, Mean, Fails)}
refusals["compiled"] = refusal(Net, lambda network: network.compile(backend="eager"))
refusals["recomputed"] = refusal(Net, lambda network: checkpoint_activations(network.blocks))
refusals["seldom"] = seldom()
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump({"differences": differences, "refusals": refusals}, file)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline")
    for world, cases in CASES.items():
        program.run(folder, world or 1, cases)
    return folder


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


def saved(folder: Path, name: str) -> dict:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        ("two", "one", 1e-5),
        ("four", "one", 1e-5),
        ("two_clip", "one_clip", 1e-6),
        ("two_accumulated", "one_pipeline", 0),
        ("two_whole", "one_dropout", 0),  # in parts in one process, too: the same values are dropped
        ("four_resumed", "one_resumed", 1e-6),
        ("two_test", "two", 1e-6),
        ("two_swa_test", "two_swa", 1e-6),
        ("two_frozen", "one_frozen", 1e-6),  # where one stage has no gradients
        ("two_norm_test", "two_norm", 1e-6),
    ],
)
def test_losses_and_metrics_are_those_of_one_process(folder, name, other, tolerance):
    mine, its = result(folder, name), result(folder, other)
    if "test" not in name:
        assert len(mine["losses"]) >= 6
        assert mine["losses"] == pytest.approx(its["losses"], abs=tolerance)
    assert mine["metrics"] == pytest.approx(its["metrics"], abs=tolerance)


def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(folder):
    mine, its = saved(folder, "two_resumed"), saved(folder, "two_whole")
    for name, weight in its["state_dict"].items():
        assert torch.equal(mine["state_dict"][name], weight), name
    states = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (mine, its)]
    assert len(states[1]) == len(its["state_dict"])  # all weights of all stages
    for number, state in states[1].items():
        assert all(torch.equal(states[0][number][name], value) for name, value in state.items())


def test_each_stage_averages_its_weights(folder):
    mine, its = saved(folder, "two_ema"), saved(folder, "one_ema")
    assert mine["averaging_state"] == its["averaging_state"]
    for state in ("state_dict", "current_model_state"):
        for name, value in its[state].items():
            torch.testing.assert_close(mine[state][name], value, rtol=0, atol=2e-6)


def test_a_network_is_divided_as_it_is_or_refused(tmp_path):
    script = tmp_path / "networks.py"
    script.write_text(NETWORKS)
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    processes = [Python(script, tmp_path, cwd=tmp_path, environment={**paths, **rank}) for rank in ranks(3)]
    printed = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, "\n".join(printed)
    refusals = []
    for rank in range(3):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(found["differences"]) > 20
        assert max(found["differences"].values()) < 1e-12
        for name, words in {
            "Skips": "Skips can't be divided into stages, as it uses what a block returns in other places",
            "Loops": "Loops can't be divided into stages, as it uses what a block returns in other places",
            "Disordered": "Disordered can't be divided into stages, as its forward does not call its blocks one",
            "Members": "Members can't be divided into stages, as its forward does not call its blocks one after the",
            "Categories": "Categories can't be divided into stages, as its forward fails without the blocks before:",
            "seldom": "step 2: " + ("" if rank else "trainer.strategy: Seldom uses a weight outside of its blocks in"),
            "Tied": "blocks.4.weight and other.weight of Tied are one weight",
            "Mean": "Mean returns something else than tensors with one row per sample",
            "Fails": "no logits",
            "compiled": "compile.children: with trainer.strategy pipeline it can't be Net as a whole",
            "recomputed": "activation_checkpointing.blocks: with trainer.strategy pipeline it can't be blocks as",
        }.items():
            assert words in found["refusals"][name]
        alike = {name: text for name, text in found["refusals"].items() if text.startswith("UserError: trainer.")}
        refusals.append({name: alike[name] for name in ("Skips", "Loops", "Disordered", "Members", "Categories")})
    assert refusals[0] == refusals[1] == refusals[2]  # one message for all
