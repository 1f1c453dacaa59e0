"""What `Compile` says about graph breaks, and its memory budget."""

import logging
import re

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from litlab.callbacks import Compile
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(192, 4)

    def forward(self, x):
        x = self.linear(x.flatten(1))
        torch._dynamo.graph_break()  # the broken line
        return x * 2


BROKEN_LINE = Breaking.forward.__code__.co_firstlineno + 2


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # dynamo's own, which it hides from all but pytest
@pytest.mark.parametrize(("network", "breaks"), [(Breaking(), 1), (nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), 0)])
def test_graph_break_report(tmp_path, network, breaks):
    compile = Compile("default", backend="eager", dynamic=True, graph_breaks=True)
    trainer = make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[compile], limit_val_batches=0)
    trainer.fit(Tiny(network=network), TinyData(8))
    text = next(tmp_path.rglob("graph_breaks.txt")).read_text()
    assert f"torch.compile: {breaks} graph break(s), 0 recompilation(s)" in text
    assert (f"Graph break in user code at {__file__}:{BROKEN_LINE}" in text) == bool(breaks)
    assert ("Reason" in text) == bool(breaks)
    assert not logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks").isEnabledFor(logging.DEBUG)


def test_graph_break_report_of_a_frame_that_is_not_compiled_at_all(tmp_path):
    class GivenUp(Breaking):
        def forward(self, x):
            for _ in range(2):
                try:
                    torch._dynamo.graph_break()
                finally:
                    y = self.linear(x.flatten(1))
            return y

    compile = Compile("default", backend="eager", graph_breaks=True)
    trainer = make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[compile], limit_val_batches=0)
    trainer.fit(Tiny(network=GivenUp()), TinyData(8))
    text = next(tmp_path.rglob("graph_breaks.txt")).read_text()
    # As torch 2.15 and 2.10 put it:
    assert re.search(rf"Graph break in user code at {__file__}|graph break occurred in.*\n +File \"{__file__}\"", text)
    assert re.search(r"Skipping the function and falling back to eager|skip tracing the frame .* to eager", text)


def test_graph_break_report_counts_recompilations(tmp_path):
    compile = Compile("default", backend="eager", dynamic=False, graph_breaks=True)
    trainer = make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[compile], limit_val_batches=0)
    trainer.fit(Tiny(network=nn.Sequential(nn.Flatten(), nn.Linear(192, 4))), TinyData(10))  # batches of 4, 4, 2
    text = next(tmp_path.rglob("graph_breaks.txt")).read_text()
    assert "torch.compile: 0 graph break(s), 1 recompilation(s)" in text
    assert "size mismatch" in text


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")
def test_memory_budget_bounds_what_is_kept_for_the_backward_pass(tmp_path):
    def kept(budget) -> int:
        torch._dynamo.reset()
        layers = [part for _ in range(3) for part in (nn.Linear(192, 192), nn.LayerNorm(192), nn.GELU())]
        model = Tiny(network=nn.Sequential(nn.Flatten(), *layers))
        callback = Compile("default", backend="aot_eager_decomp_partition", memory_budget=budget)
        trainer = make_trainer(tmp_path, callbacks=[callback])
        callback.setup(trainer, model, "fit")
        output = model.network(torch.randn(256, 3, 8, 8))
        callback.teardown(trainer, model, "fit")
        assert torch._functorch.config.activation_memory_budget == 1.0  # the process is as it was
        weights = {parameter.data_ptr() for parameter in model.parameters()}
        return sum(saved.nbytes for saved in output.grad_fn.saved_tensors if saved.data_ptr() not in weights)

    assert kept(0.3) < 0.6 * kept(None)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"memory_budget": 0.5}, r"^compile\.memory_budget: 0\.5 .* set compile\.mode: default too"),
        ({"memory_budget": 0.5, "mode": "default", "backend": "eager"}, r"^compile\.memory_budget: .*compile\.backend"),
    ],
)
def test_memory_budget_needs_the_compiler(settings, line):
    with pytest.raises(UserError, match=line):
        Compile(**settings)
