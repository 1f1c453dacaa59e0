"""What is compiled, how often, and that the results are those without."""

import logging
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from litlab.callbacks import EMA, Compile
from litlab.cli.run_errors import explain_error
from litlab.errors import UserError
from litlab.parallel import ShardedStrategy
from tests.litlab.callbacks.tiny import Tiny, TinyData, fit, make_trainer
from tests.litlab.parallel import tiny

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*have no .val_dataloader",
    "ignore:.*not a leaf Tensor",  # torch.compile hides it, pytest shows it
)
BLOCK = partial(tiny.Block, heads=1, dropout=0.0)


@pytest.fixture(autouse=True)
def set_up(tmp_path):
    """Compiles parts of a model, until the test ends."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with ExitStack() as ends:

        def compile_parts(model, strategy="auto", **options):
            compile = Compile(**{"mode": "default", "backend": "eager", **options})
            ends.callback(compile.teardown)
            compile.setup(make_trainer(tmp_path, strategy=strategy), model, "fit")
            return model

        yield compile_parts
    torch._dynamo.reset()


def count_graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["network"]),
        ({"blocks": True}, ["network.0", "network.1"]),
        ({"children": ["*.inputs"]}, ["network.0.inputs"]),
    ],
    ids=str,
)
def test_what_is_compiled(set_up, options, expected):
    model = Tiny(network=nn.Sequential(BLOCK(4), nn.Sequential(nn.Linear(4, 4))))
    model.loss = nn.CrossEntropyLoss()
    set_up(model, **options)
    assert [
        name for name, module in model.named_modules() if module._compiled_call_impl is not None
    ] == expected


# torch's own, and not
@pytest.mark.parametrize("kind", [BLOCK, lambda width: nn.Sequential(BLOCK(width), nn.Tanh())])
def test_blocks_that_are_alike_are_compiled_once_and_others_have_a_limit_of_their_own(set_up, kind):
    """PyTorch counts what it compiles by function, whichever module it belongs to."""
    before = torch._dynamo.config.recompile_limit
    model = set_up(Tiny(network=nn.Sequential(*map(kind, (4, 4, 4, 3, 2)))), blocks=True)
    assert torch._dynamo.config.recompile_limit == 3 * before
    # No leaf, as what comes from another block
    model.network[:3](torch.ones(2, 3, 4, requires_grad=True) * 1)
    assert count_graphs() == 1


@pytest.mark.parametrize(("strategy", "graphs"), [("auto", 1), (ShardedStrategy(2), 2)])
def test_layers_that_are_divided_are_compiled_for_sizes_that_are_known(set_up, strategy, graphs):
    model = set_up(Tiny(network=nn.Linear(4, 4)), strategy, dynamic=True)
    for samples in (2, 3):
        model.network(torch.ones(samples, 4))
    assert count_graphs() == graphs


def test_what_can_not_be_compiled_is_one_line(set_up):
    with pytest.raises(UserError, match=r"compile\.children: Tiny has no blocks"):
        set_up(Tiny(network=nn.Linear(2, 2)), blocks=True)
    with pytest.raises(UserError, match=r"compile\.mode: reduce-overhead needs a CUDA GPU"):
        set_up(Tiny(), mode="reduce-overhead")


class Branching(nn.Sequential):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)  # the broken line


BROKEN = f"{__file__}:{Branching.forward.__code__.co_firstlineno + 1}"


def branch() -> Tiny:
    torch.manual_seed(0)
    return Tiny(network=Branching(nn.Flatten(), nn.Linear(192, 4)))


def note_process() -> tuple:
    logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
    budget = torch._functorch.config.activation_memory_budget
    return torch._dynamo.config.recompile_limit, budget, logger.isEnabledFor(logging.DEBUG)


def test_a_compiled_run_is_an_eager_one_tells_of_breaks_and_leaves_the_process_as_it_was(
    tmp_path, monkeypatch, capfd, caplog
):
    """With mixed precision, EMA, accumulation and clipping; the test after the fit uses the
    validation's code.
    """
    results, budgets, before = [], [], note_process()
    for mode in (None, "default"):
        model = branch()
        model.on_train_start = lambda: budgets.append(note_process()[1])
        compile = Compile(mode, backend="aot_eager", graph_breaks=True, memory_budget=0.5)
        trainer = fit(
            tmp_path, model, compile, EMA(0.5), data=TinyData(16), precision="bf16-mixed",
            max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=0.5, num_sanity_val_steps=0,
        )  # fmt: skip
        assert note_process() == before
        results.append(dict(model.state_dict()))
    assert BROKEN in capfd.readouterr().err
    torch.testing.assert_close(*results, rtol=2e-2, atol=2e-2)
    assert budgets[1] == 0.5
    assert compile.seconds > 0
    graphs = count_graphs()
    monkeypatch.setattr(compile, "setup", lambda *args, **options: None)
    trainer.test(model, TinyData(16), verbose=False)
    assert count_graphs() == graphs > 0
    lines = [message for message in caplog.messages if message.startswith("compile: ")]
    assert len(lines) == 2  # one of each fit, none of the test


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"backend": "eager", "fullgraph": True},
            f"compile.fullgraph: Data-dependent branching in {BROKEN}; cha",
        ),
        ({"backend": "tvm"}, "compile.backend: "),  # torch says what is missing
    ],
    ids=str,
)
def test_what_the_compiler_can_not_do_is_one_line(tmp_path, options, says):
    model = branch()
    with pytest.raises(TorchDynamoException) as caught:
        fit(tmp_path, model, Compile("default", **options))
    assert explain_error(caught.value).startswith(says)
    assert model.trainer.global_step == 0
    fit(tmp_path, branch(), Compile("default", backend="eager"))  # as it is advised
