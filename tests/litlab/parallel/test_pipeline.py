"""A network in a pipeline of two processes, compared with itself in one piece, and the networks
that are refused.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import nn

from litlab.callbacks.activation_checkpointing import checkpoint_activations
from litlab.errors import UserError
from litlab.parallel.pipeline import Pipeline
from tests.litlab.parallel import program

CPU = torch.device("cpu")


class Net(nn.Module):
    """Blocks and what is around them, called one after the other or in another way."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.unused = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(2, 2)
        self.blocks = nn.Sequential(
            nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8)
        )
        self.order = order or range(5)

    def forward(self, x, *, scale=1.0):
        inner = hidden = self.first(x)
        for number in self.order:
            hidden = self.blocks[number](hidden)
        return self.last(hidden + inner * scale)


class Mean(Net):
    def forward(self, x):
        return super().forward(x).mean(0)


def changed(change) -> Net:
    network = Net()
    change(network)
    return network


@pytest.mark.parametrize(
    ("build", "line"),
    [
        *((lambda order=order: Net(*order), "Net must call its blocks one after the other; use "
                                            "fsdp2")
          for order in ((0, 1, 2, 3, 4, 0), (0, 1, 2))),
        (lambda: changed(lambda net: setattr(net, "other", net.blocks[4])), "blocks.4.weight and "
                                                                            "other.weight of Net"),
        (lambda: changed(lambda net: net.compile(backend="eager")), "compile.children and "
                                                                    "activation_checkpointing.bl"),
        (lambda: changed(checkpoint_activations), "must name blocks, such as '*.blocks.0'"),
    ],
    ids=range(5),
)  # fmt: skip
def test_networks_that_are_refused(build, line):
    """By one of two stages at least, which get what they need."""
    refused = []
    for stage in range(2):
        try:
            network = build()
            stages = Pipeline(network, stage, 2, 4, CPU, None)
            stages.run_stage(
                network.forward, torch.ones(1, 8) if stage else None, 0, (torch.ones(1, 4),), {}
            )
        except UserError as error:
            refused.append(str(error))
    assert refused
    assert all(line in text for text in refused)


def test_a_network_in_two_processes_is_the_same_as_in_one(tmp_path):
    program.wait(program.start(Path(__file__), 2, tmp_path))
    for rank in range(2):
        differences = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(differences) > 10
        assert max(differences) < 1e-12


def compare(rank: int) -> list[float]:
    """Return the largest differences that one of the processes finds."""
    group = torch.distributed.new_group(backend="gloo")
    differences = []

    def divide(network):
        Pipeline(network, rank, 2, 4, CPU, group)
        return network

    def note(tensor, other):
        differences.append((tensor - other).abs().max().item())

    whole, parts = Net(), Net()
    parts.blocks[0].compile(backend="eager")
    for number in (2, 4):
        checkpoint_activations(parts.blocks[number])
    divide(parts)
    assert type(parts.blocks[0]) is type(parts.blocks[2])  # or each would be compiled for itself
    for rows in (8, 7, 2):  # equal parts, unequal ones, fewer than four
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        outputs = [network(x, scale=0.5) + network(2 * x) for network in (whole, parts)]
        note(*outputs)
        for output in outputs:
            (output.softmax(1)[:, 0].prod() * 100).backward()  # no mean over samples
        with torch.no_grad():
            note(whole(x), parts(x))
    for its, mine in zip(whole.parameters(), parts.parameters(), strict=True):
        if mine.grad is not None and its.grad is not None:
            note(its.grad, mine.grad)

    images = torch.ones(5, 3, 2, 2).to(memory_format=torch.channels_last)
    layers = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(4))).to(
        memory_format=torch.channels_last
    )
    assert divide(layers)(images).shape == images.shape
    with pytest.raises(
        UserError, match="with pipeline Mean must return a tensor of one row per sample; use fsdp2"
    ):
        divide(Mean())(torch.ones(8, 4))
    return differences


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    rank = LightningEnvironment().local_rank()
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(compare(rank)))
