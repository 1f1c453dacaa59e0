"""What is compiled, how often, and that the results are those without."""

import logging
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import EMA, Compile
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, fit, make_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*have no .val_dataloader",
    "ignore:.*not a leaf Tensor",  # torch.compile hides it, pytest shows it
)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def set_up(tmp_path):
    """Compiles parts of a model, until the test ends."""
    ended = []

    def compile_parts(model, **options):
        compile = Compile(**{"mode": "default", "backend": "eager", **options})
        ended.append(compile)
        compile.setup(make_trainer(tmp_path), model, "fit")
        return model

    yield compile_parts
    for compile in ended:
        compile.teardown()


def count_graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))


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
        ({"children": ["network", "network.0"]}, ["network"]),
        ({"children": ["*.linear"]}, ["network.0.linear"]),
    ],
    ids=str,
)
def test_what_is_compiled(set_up, options, expected):
    model = Tiny(network=nn.Sequential(Block(), nn.Sequential(nn.Linear(4, 4))))
    model.loss = nn.CrossEntropyLoss()
    set_up(model, **options)
    assert [name for name, module in model.named_modules() if module._compiled_call_impl is not None] == expected


@pytest.mark.parametrize("kind", [Block, lambda: nn.Sequential(Block(), nn.Tanh())])  # torch's own class, and not
def test_blocks_that_are_alike_are_compiled_once(set_up, kind):
    model = set_up(Tiny(network=nn.Sequential(*(kind() for _ in range(5)))), blocks=True)
    model.network(torch.ones(2, 4, requires_grad=True) * 1)  # no leaf, as what comes from another block
    assert count_graphs() == 1


def test_blocks_that_differ_have_a_limit_of_their_own_each(set_up):
    """PyTorch counts what it compiles by function, whichever module it belongs to."""
    before = torch._dynamo.config.recompile_limit
    set_up(Tiny(network=nn.Sequential(*(Block(width) for width in (2, 3, 4, 4)))), blocks=True)
    assert torch._dynamo.config.recompile_limit == 3 * before


def test_options_reach_the_compiler(set_up, monkeypatch):
    given = {}
    monkeypatch.setattr(torch, "compile", lambda call, **options: given.update(options))
    options = {"mode": "max-autotune", "dynamic": False, "fullgraph": True, "backend": "inductor"}
    set_up(Tiny(), **options)
    assert given == options


@pytest.mark.parametrize(
    ("network", "options", "line"),
    [
        (None, {"children": ["netwrok"]}, r"compile\.children: 'netwrok' matches no module of Tiny; did you mean"),
        (nn.Linear(2, 2), {"blocks": True}, r"compile\.children: Tiny has no blocks"),
        pytest.param(
            None, {"mode": "reduce-overhead"}, r"compile\.mode: reduce-overhead needs a CUDA GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU"),
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_compiled_is_one_line(set_up, network, options, line):
    with pytest.raises(UserError, match=line):
        set_up(Tiny(network=network), **options)


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-5), ("bf16-mixed", 2e-2)])
def test_compiled_is_eager_under_amp_ema_accumulation_and_clipping(tmp_path, precision, tolerance):
    results = {}
    for mode in (None, "default"):
        torch.manual_seed(0)
        model = Tiny()
        fit(
            tmp_path, model, Compile(mode, backend="aot_eager"), EMA(0.5), data=TinyData(16), precision=precision,
            max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=0.5, num_sanity_val_steps=0,
        )  # fmt: skip
        results[mode] = model.state_dict()
    assert list(results["default"]) == list(results[None])
    torch.testing.assert_close(dict(results["default"]), dict(results[None]), rtol=tolerance, atol=tolerance)


def test_the_test_after_fit_uses_the_code_of_the_validation(tmp_path):
    compile, model, data = Compile("default", backend="eager"), Tiny(), TinyData(8)
    trainer = fit(tmp_path, model, compile, data=data)
    assert compile.seconds > 0
    graphs = count_graphs()
    trainer.test(model, data, verbose=False)
    assert count_graphs() == graphs > 0
    make_trainer(tmp_path, callbacks=[compile]).test(other := Tiny(), data, verbose=False)
    assert other.network._compiled_call_impl is not None  # in a test by itself, too


@pytest.mark.parametrize(("mode", "marks"), [("reduce-overhead", 2 + 2 + 2), ("default", 0)])
def test_cuda_graphs_are_told_of_each_step(tmp_path, monkeypatch, mode, marks):
    calls = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append(1))
    monkeypatch.setattr(Compile, "setup", lambda *args, **options: None)
    trainer = fit(tmp_path, Tiny(), Compile(mode), data=TinyData(8), num_sanity_val_steps=0)
    trainer.test(Tiny(), TinyData(8), verbose=False)
    assert len(calls) == marks


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
    data = TensorDataset(torch.randn(sum(sizes), 3, 8, 8), torch.arange(sum(sizes)) % 4)
    batches = DataLoader(data, batch_sampler=[list(part) for part in torch.arange(sum(sizes)).split(sizes)])
    compile = Compile("default", backend="eager", dynamic=False, graph_breaks=True)
    fit(tmp_path, Tiny(network=network()), compile, data=batches, limit_val_batches=0)
    told = capfd.readouterr().err
    assert text in told
    assert ("[__graph_breaks]" in told or "[__recompiles]" in told) == bool(text)


def test_memory_budget_bounds_what_is_kept_for_the_backward_pass(tmp_path):
    kept = {}
    for budget in (None, 0.3):
        torch._dynamo.reset()
        layers = [part for _ in range(3) for part in (nn.Linear(192, 192), nn.LayerNorm(192), nn.GELU())]
        model = Tiny(network=nn.Sequential(nn.Flatten(), *layers))
        compile = Compile("default", backend="aot_eager_decomp_partition", memory_budget=budget)
        compile.setup(make_trainer(tmp_path), model, "fit")
        output = model.network(torch.randn(256, 3, 8, 8))
        compile.teardown()
        weights = {parameter.data_ptr() for parameter in model.parameters()}
        saved = [tensor for tensor in output.grad_fn.saved_tensors if tensor.data_ptr() not in weights]
        kept[budget] = sum(tensor.nbytes for tensor in saved)
    assert kept[0.3] < 0.6 * kept[None]


@pytest.mark.parametrize("model", [Tiny, Failing])
def test_the_process_is_left_as_it_was_found(tmp_path, model):
    def process_state() -> tuple:
        logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
        budget = torch._functorch.config.activation_memory_budget
        return torch._dynamo.config.recompile_limit, budget, logger.isEnabledFor(logging.DEBUG)

    compile, before = Compile("default", backend="eager", graph_breaks=True, memory_budget=0.3), process_state()
    with suppress(ZeroDivisionError):
        fit(tmp_path, model(network=linear()), compile, data=TinyData(8), limit_val_batches=0)
    assert process_state() == before
