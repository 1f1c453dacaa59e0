"""What is divided, and what is refused: in one process, which takes part in a group that does not
exist.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from litlab.errors import UserError
from litlab.parallel import ShardedStrategy
from tests.litlab.parallel.tiny import TIME, Transformer


class Model(LightningModule):
    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.fixture
def divide():
    """Divides a model among processes that share the data, and those that share layers: 2, of which
    one exists.
    """
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)

    def divide_model(model, *shape, **settings):
        strategy = ShardedStrategy(tensor_parallel_size=shape[1], **settings)
        strategy._device_mesh = init_device_mesh(
            "cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel")
        )
        strategy._model = strategy._lightning_module = model
        strategy.divide(model)

    yield divide_model
    distributed.destroy_process_group()


def test_all_weights_are_sharded_by_blocks(divide):
    norms = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)).to(
        memory_format=torch.channels_last
    )
    model = Model(
        net=Transformer(),
        layers=norms,
        nets=nn.ModuleList([nn.ReLU(), Transformer()]),
        loss=nn.MSELoss(),
    )
    divide(model, 2, 1)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    groups = Counter(
        type(module).__name__ for module in model.modules() if hasattr(module, "unshard")
    )
    blocks = {"FSDPTransformer": 2, "FSDPBlock": 8}
    assert groups == {**blocks, "FSDPSequential": 1, "FSDPConv2d": 1, "FSDPBatchNorm2d": 1}


@pytest.mark.skipif(
    torch.__version__ < (2, 11), reason="CommDebugMode of torch 2.10 fails in the backward pass"
)
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view")
@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((1, 2), {"all_reduce": 2 * 4}),  # activations of four blocks
        # Weights twice, but for those outside of the blocks
        ((2, 1), {"_allgather_base_": 2 * 4 + 1, "_reduce_scatter_base_": 4 + 1}),
    ],
)
def test_a_step_sends_what_the_strategy_needs(divide, shape, counts):
    model = Model(net=Transformer())
    divide(model, *shape)
    with CommDebugMode() as sent:
        model.net(torch.zeros(2, TIME, dtype=torch.long)).sum().backward()
    found = {str(call).rpartition(".")[2]: count for call, count in sent.get_comm_counts().items()}
    assert found == counts


@pytest.mark.parametrize("offload", [False, True])
def test_tensor_parallel_alone_divides_layers_alone_but_with_offload(divide, offload):
    model = Model(net=Transformer(heads=4))
    model.net.blocks[1].requires_grad_(False)
    divide(model, 1, 2, cpu_offload=offload)
    assert not any(parameter.requires_grad for parameter in model.net.blocks[1].parameters())
    assert model.net.blocks[0].inputs.weight.to_local().shape == (24, 16)
    # FSDP moves it to the device and back
    assert isinstance(model.net.head.weight, DTensor) == offload


TIED = nn.Linear(2, 2), nn.Linear(2, 2)
TIED[1].weight = TIED[0].weight


@pytest.mark.parametrize(
    ("parts", "tensor", "words"),
    [
        ({"net": nn.Linear(2, 2)}, 2, "needs a parallel_plan .*, and Linear has none"),
        ({"net": Transformer(size=6, heads=3)}, 2, "heads is 3, which"),
        ({"scale": nn.ParameterList([torch.ones(1)])}, 1, r"modules, but Model itself .*\(scale"),
        (dict(zip("ab", TIED, strict=True)), 1, "a.weight and b.weight of Model share one weight"),
        ({"net": nn.Sequential(*TIED)}, 1, "net.0.weight and net.1.weight of Model share one"),
    ],
    ids=range(5),
)
def test_what_can_not_be_divided(divide, parts, tensor, words):
    model = Model(**parts)
    with pytest.raises(UserError, match=words):
        divide(model, 2 // tensor, tensor)


def test_an_optimizer_that_needs_whole_weights_is_refused(monkeypatch):
    monkeypatch.setattr(ModelParallelStrategy, "setup_optimizers", lambda *_: None)
    strategy: Any = ShardedStrategy()
    strategy.optimizers = [torch.optim.Adafactor([nn.Parameter(torch.zeros(2))])]
    with pytest.raises(UserError, match=r"^model.optimizer: Adafactor needs whole weights"):
        strategy.setup_optimizers(None)
