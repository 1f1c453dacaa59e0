"""Networks of many kinds in a pipeline of three processes, compared with themselves in one piece; not a test itself.

    python networks.py FOLDER

writes what each process has found to FOLDER/RANK.json: the largest differences.
"""

import json
import sys
from copy import deepcopy

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import nn

from litlab.errors import UserError
from litlab.nn.activation_checkpointing import checkpoint_activations
from litlab.parallel.pipeline import Pipeline


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.unused = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(2, 2)
        self.blocks = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x, *, scale=1.0):
        inner = self.first(x)
        return {"logits": self.last(self.blocks(inner) + inner * scale), "class": x.argmax(1)}


class Mean(Net):
    def forward(self, x):
        return super().forward(x)["logits"].mean(0)


def divided(network):
    Pipeline(network, rank, 3, 4, torch.device("cpu"), group)
    return network


def compile_blocks(network):
    for block in network.blocks:
        block.compile(backend="aot_eager")


def recompute(network):
    for place in (0, 2, 4):
        checkpoint_activations(network.blocks[place])


torch.set_default_dtype(torch.float64)
place = LightningEnvironment()
torch.distributed.init_process_group("gloo", rank=place.local_rank(), world_size=3)
rank, group = torch.distributed.get_rank(), torch.distributed.new_group(backend="gloo")
differences = {}
for name, change in {"plain": lambda _: None, "compiled": compile_blocks, "recomputed": recompute}.items():
    whole, parts = Net(), Net()
    change(parts)
    divided(parts)
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
        if mine.grad is not None and theirs.grad is not None:
            differences[f"{name} {weight}"] = (theirs.grad - mine.grad).abs().max().item()

torch.manual_seed(1)
whole = nn.Sequential(*[nn.Conv2d(3, 3, 1) for _ in range(4)]).to(memory_format=torch.channels_last)
parts = divided(deepcopy(whole))
images = torch.randn(5, 3, 2, 2).to(memory_format=torch.channels_last)
differences["channels last"] = (whole(images) - parts(images)).abs().max().item()

whole, parts = Net(), divided(Net())
for frozen in (False, True):
    for network in (whole, parts):
        network.first.requires_grad_(not frozen)
        network(torch.ones(4, 4))["logits"].sum().backward()
    differences[f"frozen {frozen}"] = (whole.last.weight.grad - parts.last.weight.grad).abs().max().item()

with pytest.raises(UserError, match="with pipeline Mean must return tensors of one row per sample; use fsdp2"):
    divided(Mean())(torch.ones(8, 4))
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(differences, file)
