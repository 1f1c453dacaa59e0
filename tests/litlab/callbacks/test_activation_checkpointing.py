"""Which blocks are computed again, and what they compute; test_lr_finder.py has a fit with them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torchvision.models import resnet18

from litlab.callbacks import ActivationCheckpointing
from litlab.callbacks.activation_checkpointing import checkpoint_activations
from litlab.callbacks.compile import compile_in_place
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny


def test_which_blocks():
    resnet = Tiny(network=resnet18())
    ActivationCheckpointing().setup(None, resnet, "fit")
    changed = [name for name, module in resnet.named_modules() if "forward" in vars(module)]
    assert changed == [
        f"network.layer{number}.{block}" for number in (1, 2, 3, 4) for block in (0, 1)
    ]
    with pytest.raises(UserError, match=r"^activation_checkpointing\.blocks: "):
        ActivationCheckpointing().setup(None, Tiny(), "fit")


class Block(nn.Sequential):
    def forward(self, x, *, scale):
        return x + scale * super().forward(x).relu()


def make_block(spectral=True) -> Block:
    """Draws, has statistics, and perhaps a weight that depends on a buffer which each forward pass
    changes.
    """
    torch.manual_seed(0)
    linear = nn.Linear(8, 8)
    linear = spectral_norm(linear) if spectral else linear
    return Block(linear, nn.BatchNorm1d(8), nn.Dropout(0.3))


def train(block):
    """Losses of some steps, and the state afterwards."""
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        torch.manual_seed(step)
        loss = block(torch.randn(5, 8), scale=0.5).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        loss.backward()  # computes again, with the same numbers
        losses += [loss.detach(), torch.rand(1)]  # what is drawn afterwards is the same too
        optimizer.step()
    return losses, block.state_dict()


def test_same_numbers():
    block, runs = make_block(), []
    checkpoint_activations(block)
    twin = copy.deepcopy(block)
    twin[1].register_forward_hook(lambda *_: runs.append(1))
    torch.testing.assert_close(train(twin), train(make_block()), rtol=0, atol=0)
    assert len(runs) == 3 * 3, "once more in each backward pass"
    assert block[1].num_batches_tracked == 0, "the copy is of its own"


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
def test_same_numbers_compiled():
    block = make_block(False)
    checkpoint_activations(block)
    compile_in_place(block, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(train(block), train(make_block(False)))
