"""A block that computes its activations again is the same block: losses, gradients, buffers, random numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from litlab.nn.activation_checkpointing import checkpoint_activations


class Block(nn.Module):
    """Draws, has statistics, and a weight that depends on a buffer which each forward pass changes."""

    def __init__(self, spectral: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        if spectral:
            spectral_norm(self.conv)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, x, *, scale):
        hidden = nn.functional.dropout(self.norm(self.conv(x)), 0.3)
        return x + scale * hidden.relu()


class Network(nn.Module):
    def __init__(self, spectral: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 6, 3)
        self.blocks = nn.ModuleList(Block(spectral) for _ in range(2))
        self.head = nn.Linear(6 * 36, 4)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x.flatten(1))


def train(network, precision=torch.float32, steps=3):
    """Losses, gradients and buffers of some steps."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
            loss = network(torch.randn(5, 3, 8, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        loss.backward()  # computes again, with the same numbers
        losses += [loss.detach(), torch.rand(1)]  # what is drawn afterwards is the same too
        optimizer.step()
    gradients = [parameter.grad for parameter in network.parameters()]
    return losses + gradients + [buffer.clone() for buffer in network.buffers()]


def checkpointed(spectral: bool = True) -> Network:
    network = Network(spectral)
    for block in network.blocks:
        checkpoint_activations(block)
    return network


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_same_numbers(precision):
    network = copy.deepcopy(checkpointed())
    torch.testing.assert_close(train(network, precision), train(Network(), precision), rtol=0, atol=0)
    assert list(network.state_dict()) == list(Network().state_dict())


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
def test_same_numbers_compiled():
    network = checkpointed(False)
    network.compile(backend="aot_eager")
    torch.testing.assert_close(train(network, steps=1), train(Network(False), steps=1))
