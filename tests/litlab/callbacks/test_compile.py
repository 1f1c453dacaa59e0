import logging
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import EMA, Compile
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*have no .val_dataloader",
    "ignore:.*not a leaf Tensor",  # torch.compile hides it, pytest shows it
)

MADE = []  # what a test has set up


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    for compile, model in MADE:
        compile.teardown(None, model, "fit")
    MADE.clear()
    torch._dynamo.reset()


@pytest.fixture
def spy():
    """A backend that keeps the graphs it is given."""
    graphs = []

    def spy(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.register_backend(spy, name="spy")
    yield graphs
    torch._dynamo.backends.registry._BACKENDS.pop("spy")
    torch._dynamo.backends.registry._COMPILER_FNS.pop("spy")


def set_up(model, compile, tmp_path):
    MADE.append((compile, model))
    compile.setup(make_trainer(tmp_path), model, "fit")


def batches_of(*sizes: int) -> DataLoader:
    """Batches of the given sizes, in this order."""
    images = torch.randn(sum(sizes), 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, torch.arange(sum(sizes)) % 4)
    return DataLoader(data, batch_sampler=[list(part) for part in torch.arange(sum(sizes)).split(sizes)])


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))


# What is compiled


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_compiles_in_every_stage(tmp_path, spy, stage):
    class Predicting(Tiny):
        def predict_step(self, batch, batch_idx):
            return self.network(batch[0])

    trainer = make_trainer(tmp_path, callbacks=[Compile("default", backend="spy")])
    getattr(trainer, stage)(Predicting(), TinyData().train_dataloader())
    assert spy


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(x).relu()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["network"]),
        ({"mode": None}, []),
        ({"blocks": True}, ["network.0", "network.1"]),
        ({"children": ["network.1.0"]}, ["network.1.0"]),
        ({"children": ["network", "network.0"]}, ["network"]),
        ({"children": ["*.linear"]}, ["network.0.linear"]),
    ],
    ids=str,
)
def test_what_is_compiled(tmp_path, options, expected):
    model = Tiny(network=nn.Sequential(Block(), nn.Sequential(nn.Linear(4, 4))))
    model.loss = nn.CrossEntropyLoss()
    set_up(model, Compile(**{"mode": "default", "backend": "eager", **options}), tmp_path)
    assert [name for name, module in model.named_modules() if module._compiled_call_impl is not None] == expected


@pytest.mark.parametrize("kind", [Block, lambda: nn.Sequential(Block(), nn.Tanh())])  # torch's own class, and not
def test_blocks_that_are_alike_are_compiled_once(tmp_path, spy, kind):
    model = Tiny(network=nn.Sequential(*(kind() for _ in range(5))))
    set_up(model, Compile("default", backend="spy", blocks=True), tmp_path)
    model.network(torch.ones(2, 4, requires_grad=True) * 1)  # no leaf, as what comes from another block
    assert len(spy) == 1


def test_blocks_that_differ_have_a_limit_of_their_own_each(tmp_path):
    """PyTorch counts what it compiles by function, whichever module it belongs to."""
    before = torch._dynamo.config.recompile_limit
    model = Tiny(network=nn.Sequential(*(Block(width) for width in (2, 3, 4, 4))))
    set_up(model, Compile("default", backend="eager", blocks=True), tmp_path)
    assert torch._dynamo.config.recompile_limit == 3 * before


def test_options_reach_the_compiler(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(torch, "compile", lambda call, **options: given.update(options))
    set_up(Tiny(), Compile("max-autotune", dynamic=False, fullgraph=True), tmp_path)
    assert given == {"mode": "max-autotune", "dynamic": False, "fullgraph": True, "backend": "inductor"}


@pytest.mark.parametrize(
    ("model", "options", "line"),
    [
        (Tiny, {"children": ["netwrok"]}, r"compile\.children: 'netwrok' matches no module of Tiny; did you mean"),
        (lambda: Tiny(network=nn.Linear(2, 2)), {"blocks": True}, r"compile\.children: Tiny has no blocks"),
        (lambda: Tiny(network=nn.ReLU()), {}, r"compile\.children: Tiny has no .* no children with parameters"),
        pytest.param(
            Tiny, {"mode": "reduce-overhead"}, r"compile\.mode: reduce-overhead needs a CUDA GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU"),
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_compiled_is_one_line(tmp_path, model, options, line):
    with pytest.raises(UserError, match=line):
        set_up(model(), Compile(**{"mode": "default", **options}), tmp_path)


# Results


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-5), ("bf16-mixed", 2e-2)])
def test_compiled_is_eager_under_amp_ema_accumulation_and_clipping(tmp_path, precision, tolerance):
    results = {}
    for mode in (None, "default"):
        torch.manual_seed(0)
        model = Tiny()
        trainer = make_trainer(
            tmp_path, callbacks=[Compile(mode, backend="aot_eager"), EMA(0.5)], precision=precision, max_epochs=2,
            accumulate_grad_batches=2, gradient_clip_val=0.5, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, TinyData(16))
        results[mode] = model.state_dict()
    assert list(results["default"]) == list(results[None])
    torch.testing.assert_close(dict(results["default"]), dict(results[None]), rtol=tolerance, atol=tolerance)


def test_the_test_after_fit_uses_the_code_of_the_validation(tmp_path):
    compile = Compile("default", backend="eager")
    trainer = make_trainer(tmp_path, callbacks=[compile])
    model, data = Tiny(), TinyData(8)
    trainer.fit(model, data)
    assert compile.seconds > 0
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    trainer.test(model, data, verbose=False)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


@pytest.mark.parametrize(("mode", "marks"), [("reduce-overhead", 2 + 2 + 2), ("default", 0), (None, 0)])
def test_cuda_graphs_are_told_of_each_step(tmp_path, monkeypatch, mode, marks):
    calls = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append(1))
    monkeypatch.setattr(Compile, "setup", lambda *args, **options: None)
    trainer = make_trainer(tmp_path, callbacks=[Compile(mode)], num_sanity_val_steps=0)
    trainer.fit(Tiny(), TinyData(8))
    trainer.test(Tiny(), TinyData(8), verbose=False)
    assert len(calls) == marks


# Graph breaks and the memory budget


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(192, 4)

    def forward(self, x):
        x = self.linear(x.flatten(1))
        torch._dynamo.graph_break()  # the broken line
        return x * 2


BROKEN_LINE = Breaking.forward.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    ("network", "sizes", "text"),
    [
        (Breaking, (4, 4), f"{__file__}:{BROKEN_LINE}"),
        (linear, (4, 4, 2), "size mismatch"),
        (linear, (4, 4), ""),
    ],
)
def test_graph_breaks_and_recompilations_are_told(tmp_path, capfd, network, sizes, text):
    compile = Compile("default", backend="eager", dynamic=False, graph_breaks=True)
    trainer = make_trainer(tmp_path, callbacks=[compile], limit_val_batches=0)
    trainer.fit(Tiny(network=network()), batches_of(*sizes))
    told = capfd.readouterr().err
    assert text in told
    assert ("[__graph_breaks]" in told or "[__recompiles]" in told) == bool(text)


def kept_bytes(folder, budget) -> int:
    """Return what a compiled network keeps for the backward pass, without its weights."""
    torch._dynamo.reset()
    layers = [part for _ in range(3) for part in (nn.Linear(192, 192), nn.LayerNorm(192), nn.GELU())]
    model = Tiny(network=nn.Sequential(nn.Flatten(), *layers))
    compile = Compile("default", backend="aot_eager_decomp_partition", memory_budget=budget)
    compile.setup(make_trainer(folder), model, "fit")
    output = model.network(torch.randn(256, 3, 8, 8))
    compile.teardown(make_trainer(folder), model, "fit")
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    return sum(saved.nbytes for saved in output.grad_fn.saved_tensors if saved.data_ptr() not in weights)


def test_memory_budget_bounds_what_is_kept_for_the_backward_pass(tmp_path):
    assert kept_bytes(tmp_path, 0.3) < 0.6 * kept_bytes(tmp_path, None)


@pytest.mark.parametrize("model", [Tiny, Failing])
def test_the_process_is_left_as_it_was_found(tmp_path, model):
    compile = Compile("default", backend="eager", graph_breaks=True, memory_budget=0.3)
    trainer = make_trainer(tmp_path, callbacks=[compile], limit_val_batches=0)
    before = process_state()
    with suppress(ZeroDivisionError):
        trainer.fit(model(network=linear()), TinyData(8))
    assert process_state() == before


def process_state() -> tuple:
    return (
        torch._dynamo.config.recompile_limit,
        torch._functorch.config.activation_memory_budget,
        logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks").isEnabledFor(logging.DEBUG),
    )
