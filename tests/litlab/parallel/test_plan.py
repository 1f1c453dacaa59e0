"""What is divided, and what is refused: in one process, which takes part in a group that does not exist."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchmetrics import MeanMetric

from litlab.errors import UserError
from litlab.parallel import ParallelPlan, ShardedStrategy, strategy
from litlab.parallel.plan import networks
from litlab.parallel.strategy import divide_layers, shard_fully
from tests.litlab.parallel.tiny import Transformer


class Net(nn.Module):
    """Layers in the ways in which a network may have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.grid = nn.ModuleList(nn.ModuleList([nn.Linear(4, 4), nn.Identity()]) for _ in range(2))


class Model(LightningModule):
    """Networks in the ways in which a LightningModule may have them."""

    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.fixture
def mesh():
    """Both dimensions of 2 processes, of which the other does not exist."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield lambda name: init_device_mesh("cpu", (2,), mesh_dim_names=(name,))
    distributed.destroy_process_group()


def divided(mesh: Any, model: LightningModule, *shape: int, **settings: Any) -> ShardedStrategy:
    """Divide a model among processes that share the data, and those that share layers."""
    made = ShardedStrategy(tensor_parallel_size=shape[1], **settings)
    made._device_mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))
    made._model = made._lightning_module = model
    made.divide(model)
    return made


def test_networks_are_what_is_called():
    net = nn.Linear(2, 2)
    nets = nn.ModuleDict({"same": net, "list": nn.ModuleList([nn.ReLU(), nn.Linear(2, 2)])})
    model = Model(net=net, nets=nets, loss=nn.MSELoss(), weights=nn.ParameterList([torch.zeros(2)]))
    assert list(networks(model)) == ["net", "nets.list.1"]


@pytest.mark.parametrize("settings", [{}, {"cpu_offload": True}])
def test_all_weights_are_sharded(mesh, settings):
    model = Model(net=Net(), layers=nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nets=nn.ModuleList([Net()]))
    divided(mesh, model, 2, 1, **settings)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    groups = Counter(type(module).__name__ for module in model.modules() if hasattr(module, "unshard"))
    assert groups == {"FSDPNet": 2, "FSDPSequential": 3, "FSDPLinear": 8}  # 3 linear blocks of each Net, and 2


@pytest.mark.parametrize("offload", [False, True])
def test_tensor_parallel_alone_divides_layers_alone_but_with_offload(mesh, offload):
    model = Model(net=Transformer(heads=4))
    divided(mesh, model, 1, 2, cpu_offload=offload)
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
def test_layers_that_can_not_be_divided(mesh, monkeypatch, plan, settings, words):
    monkeypatch.setattr(Transformer, "parallel_plan", ParallelPlan(**plan))
    with pytest.raises(UserError, match=words):
        divide_layers(Transformer(**settings), mesh("tensor_parallel"))


def test_one_weight_of_two_layers_stays_one_weight(mesh):
    net = Net()
    net.layers[0].weight = net.grid[0][0].weight  # in two blocks
    with pytest.raises(UserError, match=r"net.layers.0.weight and net.grid.0.0.weight of Model are one weight"):
        divided(mesh, Model(net=net), 2, 1)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    with pytest.raises(UserError, match=r"first.weight and second.weight of Model are one weight"):
        divided(mesh, Model(first=first, second=second), 2, 1)
    model = Model(net=nn.Sequential(nn.Sequential(first, second)))  # within one block
    divided(mesh, model, 2, 1)
    assert model.net[0][0].weight is model.net[0][1].weight
    net = Transformer(size=40)
    net.blocks[0].feedforward[2].weight = nn.Parameter(net.blocks[0].feedforward[0].weight.T)
    net.head.weight = net.blocks[0].feedforward[2].weight
    with pytest.raises(UserError, match=r"blocks.0.feedforward.2.weight and head.weight of Transformer are one weight"):
        divided(mesh, Model(net=net), 1, 2)


@pytest.mark.parametrize("own", [{"scale": nn.Parameter(torch.ones(1))}, {"scale": nn.ParameterList([torch.ones(1)])}])
def test_parameters_outside_of_networks_are_refused(mesh, own):
    with pytest.raises(UserError, match=r"trainer.strategy: ShardedStrategy shards modules, and Model has .*\(scale"):
        divided(mesh, Model(net=Net(), **own), 2, 1)


def test_an_optimizer_that_needs_whole_weights_is_refused(mesh, monkeypatch):
    def set_up(strategy: ShardedStrategy, trainer: Any) -> None:
        strategy.optimizers = [torch.optim.Adafactor([nn.Parameter(torch.zeros(2))])]

    monkeypatch.setattr(ModelParallelStrategy, "setup_optimizers", set_up)
    with pytest.raises(UserError, match=r"^model.optimizer: Adafactor needs whole weights, which trainer.strategy"):
        ShardedStrategy().setup_optimizers(cast(Any, None))


@pytest.mark.parametrize("offload", [True, False])
def test_offload_leaves_weights_in_host_memory(mesh, monkeypatch, offload):
    """The device is "meta" here: only where things are matters."""
    monkeypatch.setattr(ShardedStrategy, "root_device", torch.device("meta"))
    model = Model(net=nn.BatchNorm1d(2), metric=MeanMetric())
    divided(mesh, model, 2, 1, cpu_offload=offload).model_to_device()
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu" if offload else "meta"}
    assert {buffer.device.type for buffer in model.buffers()} == {"meta"}
    assert (model.device.type, model.metric.device.type) == ("meta", "meta")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_offload_pins_memory_for_gpus_only(monkeypatch, kind):
    """torch's own function is replaced: it would need the GPU."""
    seen = []
    monkeypatch.setattr(strategy, "fully_shard", lambda module, **options: seen.append(options["offload_policy"]))
    device: Any = SimpleNamespace(device_type=kind)
    shard_fully(nn.Linear(2, 2), device, "32-true", offload=True, reshard=True)
    assert seen == [CPUOffloadPolicy(pin_memory=kind == "cuda")]


def test_metrics_are_gathered_from_those_with_other_samples(mesh):
    for shape in ((2, 1), (1, 2)):
        made = divided(mesh, Model(net=Transformer(), metric=MeanMetric()), *shape)
        made._gather_metrics(made.model)
        copied: Any = made.model.metric.clone()
        assert len(copied.dist_sync_fn(torch.ones(1), group=None)) == shape[0]


def test_processes_with_the_same_samples_count_once(mesh):
    """Each of two processes has all samples: a sum over the processes is twice what it is over the samples."""
    made = divided(mesh, Model(net=Transformer()), 1, 2)
    assert made.reduce(torch.tensor(2.0), reduce_op="sum") == 1.0  # the group that does not exist adds nothing
    assert made.reduce(torch.tensor(2), reduce_op="sum") == 1
    assert made.reduce(torch.tensor(2.0), group=distributed.group.WORLD, reduce_op="sum") == 2.0
    assert made.reduce(torch.tensor(2), reduce_op=distributed.ReduceOp.SUM) == 2  # as of decisions


def test_norms_that_are_blocks_are_sharded_once_and_keep_float32(mesh):
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    shard_fully(network.to(memory_format=torch.channels_last), mesh("fsdp"), "bf16-mixed", False, True)
    assert all(isinstance(parameter, DTensor) for parameter in network.parameters())
    policies: list[Any] = [part._get_fsdp_state()._mp_policy.param_dtype for part in network]
    assert policies == [torch.bfloat16, None, torch.bfloat16]


def test_frozen_layers_stay_frozen(mesh):
    network = Transformer()
    network.blocks.requires_grad_(False)
    divide_layers(network, mesh("tensor_parallel"))
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert trained == {"embedding.weight", "positions", "head.weight", "head.bias"}
