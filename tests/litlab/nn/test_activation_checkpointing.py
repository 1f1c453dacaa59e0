"""A block that computes its activations again is the same block: losses, gradients, buffers, random numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from litlab.nn.activation_checkpointing import checkpoint_activations
from tests.peak_memory import peak_tensor_bytes


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


def same(ones, others):
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def checkpointed(spectral: bool = True) -> Network:
    network = Network(spectral)
    for block in network.blocks:
        checkpoint_activations(block)
    return network


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_same_numbers(precision):
    network = checkpointed()
    assert same(train(network, precision), train(Network(), precision))
    assert list(network.state_dict()) == list(Network().state_dict())


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
def test_same_numbers_compiled():
    network = checkpointed(False)
    network.compile(backend="aot_eager")
    torch.testing.assert_close(train(network, steps=1), train(Network(False), steps=1))


def test_copies_are_independent_and_it_can_be_taken_back():
    network = checkpointed()
    twin = copy.deepcopy(network)
    assert same(train(twin), train(network))  # training the copy has not touched it
    for block in twin.blocks:
        del block.forward
    assert all(block.forward.__func__ is Block.forward for block in twin.blocks)


def test_activations_of_one_block_at_a_time():
    def peak(change) -> float:
        blocks = nn.Sequential(
            *(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU()) for _ in range(8))
        )
        for block in blocks:
            change(block)
        inputs = torch.randn(1000, 32)
        return peak_tensor_bytes(lambda: blocks(inputs).sum().backward()) / inputs.nbytes

    kept, recomputed = peak(lambda block: None), peak(checkpoint_activations)
    assert kept > 8 * 4  # four tensors of each block
    assert recomputed < 8 + 6  # its output, and what one block needs
