"""What is divided, and what is refused: in one process, which takes part in a group that does not exist."""

from collections import Counter
from typing import Any, cast

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchmetrics import MeanMetric

from litlab.errors import UserError
from litlab.parallel import ParallelPlan, ShardedStrategy
from litlab.parallel.plan import networks
from tests.litlab.parallel.tiny import Transformer


class Net(nn.Module):
    """Layers in the ways in which a network may have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.grid = nn.ModuleList(nn.ModuleList([nn.Linear(4, 4), nn.Identity()]) for _ in range(2))


class Model(LightningModule):
    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.fixture
def divide():
    """Divides a model among processes that share the data, and those that share layers: 2, of which one exists."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)

    def divide_model(model: LightningModule, *shape: int, **settings: Any) -> ShardedStrategy:
        strategy = ShardedStrategy(tensor_parallel_size=shape[1], **settings)
        strategy._device_mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))
        strategy._model = strategy._lightning_module = model
        strategy.divide(model)
        return strategy

    yield divide_model
    distributed.destroy_process_group()


def tied(first: Any, second: Any) -> None:
    second.weight = first.weight


def test_networks_are_what_is_called():
    net = nn.Linear(2, 2)
    nets = nn.ModuleDict({"same": net, "list": nn.ModuleList([nn.ReLU(), nn.Linear(2, 2)])})
    model = Model(net=net, nets=nets, loss=nn.MSELoss(), weights=nn.ParameterList([torch.zeros(2)]))
    assert list(networks(model)) == ["net", "nets.list.1"]


def test_all_weights_are_sharded_by_blocks(divide):
    norms = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)).to(memory_format=torch.channels_last)
    model = Model(net=Net(), layers=norms, nets=nn.ModuleList([Net()]))
    divide(model, 2, 1)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    groups = Counter(type(module).__name__ for module in model.modules() if hasattr(module, "unshard"))
    assert groups == {
        "FSDPNet": 2, "FSDPSequential": 3, "FSDPLinear": 6, "FSDPConv2d": 1, "FSDPBatchNorm2d": 1,
    }  # fmt: skip


@pytest.mark.parametrize("offload", [False, True])
def test_tensor_parallel_alone_divides_layers_alone_but_with_offload(divide, offload):
    model = Model(net=Transformer(heads=4))
    divide(model, 1, 2, cpu_offload=offload)
    assert model.net.blocks[0].attention.inputs.weight.to_local().shape == (24, 16)
    assert isinstance(model.net.head.weight, DTensor) == offload  # FSDP moves it to the device and back


@pytest.mark.parametrize(
    ("plan", "settings", "words"),
    [
        ({}, {}, "^trainer.strategy: Transformer has no parallel_plan that says which layers to divide"),
        ({"columns": ["blocks.*.feedforward.9"]}, {}, "^parallel_plan.columns of Transformer: .* matches no module"),
        ({"rows": ["head"], "counts": ["blocks.*.attention.heads"]}, {"size": 6, "heads": 3}, "heads is 3, which"),
    ],
)
def test_layers_that_can_not_be_divided(divide, monkeypatch, plan, settings, words):
    monkeypatch.setattr(Transformer, "parallel_plan", ParallelPlan(**plan))
    with pytest.raises(UserError, match=words):
        divide(Model(net=Transformer(**settings)), 1, 2)


def test_one_weight_of_two_layers_stays_one_weight(divide):
    net, deep, layers = Net(), Transformer(size=40), nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    tied(net.layers[0], net.grid[0][0])
    tied(layers[0][0], layers[0][1])
    tied(deep.blocks[0].feedforward[2], deep.head)
    with pytest.raises(UserError, match=r"net.layers.0.weight and net.grid.0.0.weight of Model are one weight"):
        divide(Model(net=net), 2, 1)
    with pytest.raises(UserError, match=r"first.weight and second.weight of Model are one weight"):
        divide(Model(first=layers[0][0], second=layers[0][1]), 2, 1)
    with pytest.raises(UserError, match=r"blocks.0.feedforward.2.weight and head.weight of Transformer are one weight"):
        divide(Model(net=deep), 1, 2)
    divide(Model(net=layers), 2, 1)  # within one block
    assert layers[0][0].weight is layers[0][1].weight


@pytest.mark.parametrize("own", [nn.Parameter(torch.ones(1)), nn.ParameterList([torch.ones(1)])])
def test_parameters_outside_of_networks_are_refused(divide, own):
    with pytest.raises(UserError, match=r"trainer.strategy: ShardedStrategy shards modules, and Model has .*\(scale"):
        divide(Model(net=Net(), scale=own), 2, 1)


def test_an_optimizer_that_needs_whole_weights_is_refused(monkeypatch):
    def set_up(strategy: ShardedStrategy, trainer: Any) -> None:
        strategy.optimizers = [torch.optim.Adafactor([nn.Parameter(torch.zeros(2))])]

    monkeypatch.setattr(ModelParallelStrategy, "setup_optimizers", set_up)
    with pytest.raises(UserError, match=r"^model.optimizer: Adafactor needs whole weights, which trainer.strategy"):
        ShardedStrategy().setup_optimizers(cast(Any, None))


def test_offload_leaves_weights_in_host_memory(divide, monkeypatch):
    """The device is "meta" here: only where things are matters."""
    monkeypatch.setattr(ShardedStrategy, "root_device", torch.device("meta"))
    model = Model(net=nn.BatchNorm1d(2), metric=MeanMetric())
    divide(model, 2, 1, cpu_offload=True).model_to_device()
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert {buffer.device.type for buffer in model.buffers()} == {"meta"}
    assert (model.device.type, model.metric.device.type) == ("meta", "meta")


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)])
def test_sums_and_metrics_count_each_sample_once(divide, monkeypatch, shape):
    """They are those of the processes with other samples, but for a decision, which all processes take."""
    strategy = divide(Model(net=Transformer(), metric=MeanMetric()), *shape)
    strategy._gather_metrics(strategy.model)
    copied: Any = strategy.model.metric.clone()
    assert len(copied.dist_sync_fn(torch.ones(1), group=None)) == shape[0]
    monkeypatch.setattr(ModelParallelStrategy, "reduce", lambda self, tensor, group, operation: group and group.size())
    assert strategy.reduce(torch.ones(1), reduce_op="sum") == shape[0]
    assert strategy.reduce(torch.ones(1), distributed.group.WORLD, "sum") == 2
    assert strategy.reduce(torch.ones(1), reduce_op=distributed.ReduceOp.SUM) is None
