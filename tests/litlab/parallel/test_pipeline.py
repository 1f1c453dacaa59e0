"""Which networks a pipeline divides."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from litlab.errors import UserError
from litlab.nn.activation_checkpointing import checkpoint_activations
from litlab.parallel.pipeline import Pipeline
from tests.litlab.parallel import program


class Net(nn.Module):
    """A network whose blocks are called one after the other, or in another way."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        self.order = order

    def forward(self, x):
        for number in self.order:
            x = self.blocks[number](x)
        return x


def pipeline(network: nn.Module, stage: int) -> Pipeline:
    return Pipeline(network, stage, 2, 4, torch.device("cpu"), None)


def tie(network: Net) -> None:
    network.other = network.blocks[2]


@pytest.mark.parametrize("order", [(0, 1, 2, 0, 1, 2), (0, 2, 1), (0, 1), ()])
def test_blocks_must_be_called_one_after_the_other(order):
    refused = []
    for number in range(2):
        network = Net(order)
        received = torch.ones(1, 2) if number else None
        try:
            pipeline(network, number).run_stage(network.forward, received, 0, (torch.ones(1, 2),), {})
        except UserError as error:
            refused.append(str(error))
    assert refused
    assert all("with pipeline Net must call its blocks one after the other; use fsdp2" in text for text in refused)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (tie, "blocks.2.weight and other.weight of Net are one weight"),
        (lambda network: network.compile(backend="eager"), "compile.children: with trainer.strategy pipeline it must"),
        (checkpoint_activations, "activation_checkpointing.blocks: with trainer.strategy pipeline it must name blocks"),
    ],
)
def test_what_is_around_blocks_is_refused(change, words):
    network = Net()
    change(network)
    with pytest.raises(UserError, match=words):
        pipeline(network, 0)


def test_a_network_in_three_processes_is_the_same_as_in_one(tmp_path):
    program.wait(program.start(Path(__file__).with_name("networks.py"), 3, tmp_path))
    for rank in range(3):
        differences = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(differences) > 20
        assert max(differences.values()) < 1e-12
