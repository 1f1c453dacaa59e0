"""What is divided, and what is refused: in one process, which takes part in a group that does not exist."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.tensor import DTensor
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchmetrics import MeanMetric

from litlab.errors import UserError
from litlab.parallel import ParallelPlan, PipelineStrategy, ShardedStrategy, sharding
from litlab.parallel.plan import networks, plan_of
from litlab.parallel.sharding import divide_tensors, policy_of, shard_fully
from tests.litlab.parallel.tiny import Transformer


class Net(nn.Module):
    """Layers in the ways in which a network may have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.grid = nn.ModuleList(nn.ModuleList([nn.Linear(4, 4), nn.Identity()]) for _ in range(2))
        self.inner = nn.ModuleDict({"deep": nn.ModuleDict({"list": nn.ModuleList([nn.Linear(4, 4)])})})


class Model(LightningModule):
    """Networks in the ways in which a LightningModule may have them."""

    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.fixture
def processes():
    """A group of 2 processes, of which the other does not exist."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def mesh(processes):
    """Both dimensions of 2 processes."""
    return lambda name: init_device_mesh("cpu", (2,), mesh_dim_names=(name,))


def divided(group, model, *shape, **settings):
    """Divide a model among processes that share the data, and those that share layers."""
    strategy = ShardedStrategy(tensor_parallel_size=shape[1], **settings)
    strategy._device_mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))
    strategy._model = strategy._lightning_module = model
    strategy._check()
    strategy._divide()
    return strategy


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
    assert groups == {"FSDPNet": 2, "FSDPSequential": 3, "FSDPLinear": 10}  # 4 linear blocks of each Net, and 2


def test_without_tensor_parallel_nothing_is_divided_but_with_offload(mesh):
    plan = {"heads": 4}
    model = Model(net=Transformer(**plan))
    divided(mesh, model, 1, 2)
    assert not isinstance(model.net.head.weight, DTensor)
    assert model.net.blocks[0].attention.inputs.weight.to_local().shape == (24, 16)
    model = Model(net=Transformer(**plan))
    divided(mesh, model, 1, 2, cpu_offload=True)
    assert isinstance(model.net.head.weight, DTensor)  # FSDP moves it to the device and back


@pytest.mark.parametrize(
    ("plan", "settings", "words"),
    [
        ({}, {}, "Transformer has no parallel_plan that says which layers to divide"),
        ({"columns": ["blocks.*.feedforward.9"]}, {}, "names blocks.[*].feedforward.9, and there is no such module"),
        ({"columns": ["embedding"]}, {}, "Transformer.embedding is a Embedding, and only plain linear layers"),
        ({"columns": ["head"]}, {}, "Transformer.head has 5 features, which tensor_parallel_size 2 does not divide"),
        ({"rows": ["head"]}, {"size": 3, "heads": 3}, "Transformer.head has 3 features"),
        ({"rows": ["head"], "counts": ["blocks.*.attention.heads"]}, {"size": 6, "heads": 3}, "heads is 3, which"),
        ({"rows": ["head"], "counts": ["blocks.*.attention.keys"]}, {}, "blocks.0.attention has no number keys"),
    ],
)
def test_layers_that_can_not_be_divided(mesh, plan, settings, words):
    with pytest.raises(UserError, match=rf"^trainer.strategy: .*{words}"):
        divide_tensors(Transformer(**settings), ParallelPlan(**plan), mesh("tensor_parallel"))


def test_a_layer_whose_weight_is_computed_can_not_be_divided(mesh):
    network = Transformer()
    spectral_norm(network.blocks[0].feedforward[0])
    with pytest.raises(UserError, match=r"blocks.0.feedforward.0 is a ParametrizedLinear, and only plain linear"):
        divide_tensors(network, ParallelPlan(columns=["blocks.*.feedforward.0"]), mesh("tensor_parallel"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"blocks": None}, "blocks is None; give a list of names"),
        ({"columns": "blocks.*.feedforward.0"}, "columns is 'blocks.*.feedforward.0'; give a list"),
        ({"rows": [3]}, r"rows is [3]; give a list of names"),
    ],
)
def test_values_of_a_plan_have_types(wrong, words):
    with pytest.raises(UserError) as raised:
        ParallelPlan(**wrong)
    assert str(raised.value).startswith(f"parallel_plan: {words}")


def test_weights_and_numbers_that_can_not_be_divided(mesh):
    class Scaled(nn.Linear):
        heads = property(lambda self: 4)

    model = Model(net=nn.Sequential(nn.Linear(2, 2)))
    model.net[0].scale = nn.Parameter(torch.ones(()))
    with pytest.raises(UserError, match=r"Sequential.0.scale is a parameter of shape \(\), which FSDP2 can't shard"):
        divided(mesh, model, 2, 1)
    network = nn.Sequential(Scaled(4, 4))
    with pytest.raises(UserError, match=r"trainer.strategy: Sequential.0.heads can't be set; make it a plain"):
        divide_tensors(network, ParallelPlan(columns=["0"], counts=["0.heads"]), mesh("tensor_parallel"))
    with pytest.warns(FutureWarning, match="weight_norm"):
        network = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)))
    with pytest.raises(UserError, match=r"Sequential.0 is a Linear, and only plain linear layers"):
        divide_tensors(network, ParallelPlan(columns=["0"]), mesh("tensor_parallel"))


def test_a_plan_is_a_plan(monkeypatch):
    monkeypatch.setattr(Transformer, "parallel_plan", {"blocks": ["blocks.*"]})
    with pytest.raises(UserError, match=r"trainer.strategy: parallel_plan of Transformer is a dict; it must be"):
        plan_of(Transformer())


def test_one_weight_of_two_layers_stays_one_weight(mesh):
    net = Net()
    net.layers[0].weight = net.grid[0][0].weight  # in two blocks
    with pytest.raises(UserError, match=r"net.layers.0.weight and net.grid.0.0.weight of Model are one weight"):
        divided(mesh, Model(net=net), 2, 1)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    with pytest.raises(UserError, match=r"first.weight and second.weight of Model are one weight"):
        divided(mesh, Model(first=first, second=second), 2, 1)
    model = Model(net=nn.Sequential())
    model.net.add_module("pair", Model(first=first, second=second))  # within one block
    divided(mesh, model, 2, 1)
    assert model.net.pair.first.weight is model.net.pair.second.weight
    net = Transformer(size=40)
    net.blocks[0].feedforward[2].weight = nn.Parameter(net.blocks[0].feedforward[0].weight.T)
    net.head.weight = net.blocks[0].feedforward[2].weight
    with pytest.raises(UserError, match=r"blocks.0.feedforward.2.weight and head.weight of Transformer are one weight"):
        divided(mesh, Model(net=net), 1, 2)


@pytest.mark.parametrize("own", [{"scale": nn.Parameter(torch.ones(1))}, {"scale": nn.ParameterList([torch.ones(1)])}])
def test_parameters_outside_of_networks_are_refused(mesh, own):
    with pytest.raises(UserError, match=r"trainer.strategy: ShardedStrategy shards modules, and Model has .*\(scale"):
        divided(mesh, Model(net=Net(), **own), 2, 1)


def test_updates_in_one_call_are_refused_or_left_out():
    strategy = ShardedStrategy(tensor_parallel_size=2, cpu_offload=True)
    weights = [nn.Parameter(torch.zeros(2))]
    strategy.optimizers = [torch.optim.AdamW(weights, foreach=True)]
    strategy._prepare_optimizers()
    assert strategy.optimizers[0].param_groups[0]["foreach"] is False
    plain = torch.optim.AdamW(weights, fused=True)
    strategy.load_optimizer_state_dict({"optimizer_states": [plain.state_dict()]})  # of a run with ddp
    assert strategy.optimizers[0].param_groups[0]["fused"] is None
    strategy.optimizers = [plain]
    with pytest.raises(UserError, match=r"model.optimizer.fused: .* tensor_parallel_size of trainer.strategy"):
        strategy._prepare_optimizers()


def test_offload_leaves_weights_in_host_memory(monkeypatch):
    """The device is "meta" here: only where things are matters."""
    monkeypatch.setattr(ShardedStrategy, "root_device", torch.device("meta"))
    for offload, device in ((True, "cpu"), (False, "meta")):
        strategy = ShardedStrategy(cpu_offload=offload)
        strategy._model = Model(net=nn.BatchNorm1d(2), metric=MeanMetric())
        strategy.model_to_device()
        assert {parameter.device.type for parameter in strategy._model.parameters()} == {device}
        assert {buffer.device.type for buffer in strategy._model.buffers()} == {"meta"}
        assert (strategy._model.device.type, strategy._model.metric.device.type) == ("meta", "meta")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_offload_pins_memory_for_gpus_only(monkeypatch, kind):
    """torch's own function is replaced: it would need the GPU."""
    seen = []
    monkeypatch.setattr(sharding, "fully_shard", lambda module, **options: seen.append(options["offload_policy"]))
    place = SimpleNamespace(device_type=kind)
    shard_fully(Net(), [], place, policy_of("32-true"), offload=True, reshard=True)  # pyright: ignore[reportArgumentType]
    assert seen == [CPUOffloadPolicy(pin_memory=kind == "cuda")]


def test_metrics_can_still_be_copied(mesh):
    strategy = divided(mesh, Model(net=Net(), metric=MeanMetric()), 2, 1)
    strategy.gather_in_data_group(strategy._model)
    copied = strategy._model.metric.clone()
    assert len(copied.dist_sync_fn(torch.ones(1), group=None)) == 2


def test_processes_with_the_same_samples_count_once(mesh):
    """Each of two processes has all samples: a sum over the processes is twice what it is over the samples."""
    model = Model(net=Transformer(), metric=MeanMetric())
    strategy = divided(mesh, model, 1, 2)
    strategy.gather_in_data_group(model)
    assert len(model.metric.dist_sync_fn(torch.ones(1), group=None)) == 1
    assert strategy.reduce(torch.tensor(2.0), reduce_op="sum") == 1.0  # the group that does not exist adds nothing
    assert strategy.reduce(torch.tensor(2), reduce_op="sum") == 1
    assert strategy.reduce(torch.tensor(2.0), group=distributed.group.WORLD, reduce_op="sum") == 2.0


def test_norms_that_are_blocks_are_sharded_once(mesh):
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    shard_fully(network, ["0", "1", "2"], mesh("fsdp"), policy_of("bf16-mixed"), False, True)
    assert all(isinstance(parameter, DTensor) for parameter in network.parameters())


def test_frozen_layers_stay_frozen(mesh):
    network = Transformer()
    network.blocks.requires_grad_(False)
    divide_tensors(network, Transformer.parallel_plan, mesh("tensor_parallel"))
    assert {name for name, parameter in network.named_parameters() if parameter.requires_grad} == {
        "embedding.weight", "positions", "head.weight", "head.bias"
    }  # fmt: skip


def test_an_optimizer_that_needs_whole_weights_is_refused():
    strategy = ShardedStrategy(cpu_offload=True)  # there is no device
    strategy.optimizers = [torch.optim.Adafactor([nn.Parameter(torch.zeros(2))])]
    with pytest.raises(UserError, match=r"^model.optimizer: Adafactor needs .* trainer.strategy ShardedStrategy"):
        strategy._prepare_optimizers()


@pytest.mark.parametrize(
    ("kind", "setting"), [(ShardedStrategy, "tensor_parallel_size"), (PipelineStrategy, "microbatches")]
)
def test_numbers_are_at_least_one(kind, setting):
    with pytest.raises(UserError, match=f"trainer.strategy: {setting} is 0; set it to 1 or more"):
        kind(**{setting: 0})
