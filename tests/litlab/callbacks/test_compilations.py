"""What a run says of its compilations: seconds, recompilations and their cause, the limit."""

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import EMA, Compile, RunSummary
from tests.litlab.callbacks.test_summary import row, text_of
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*have no .val_dataloader")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batches_of(*sizes: int) -> DataLoader:
    """Batches of the given sizes, in this order."""
    images = torch.randn(sum(sizes), 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, torch.arange(sum(sizes)) % 4)
    return DataLoader(data, batch_sampler=[list(part) for part in torch.arange(sum(sizes)).split(sizes)])


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))


def fitted(folder, compile, *sizes, **settings) -> LightningModule:
    torch.manual_seed(0)
    model = Tiny(network=network())
    trainer = make_trainer(folder, callbacks=[compile], limit_val_batches=0, **settings)
    trainer.fit(model, batches_of(*sizes))
    return model


def test_training_validation_and_test_are_no_recompilations(tmp_path):
    compile = Compile("default", backend="eager")
    summary = RunSummary()
    trainer = make_trainer(tmp_path, callbacks=[compile, summary])
    model, data = Tiny(), TinyData(8)
    trainer.fit(model, data)
    assert "s" in row(text_of(summary), "compile")
    assert compile.seconds > 0
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    trainer.test(model, data, verbose=False)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs  # the validation's code is the test's
    assert "recompilation" not in compile.report()


def test_seconds_count_this_run_alone(tmp_path):
    torch.compile(lambda x: x * 3, backend="eager")(torch.ones(2))
    compile = Compile("default", backend="eager")
    assert compile.seconds == 0
    fitted(tmp_path, compile, 4, 4)
    seconds = compile.seconds
    torch.compile(lambda x: x * 4, backend="eager")(torch.ones(2))
    assert compile.seconds == seconds > 0


def test_what_was_compiled_again_is_said_once_with_its_cause(tmp_path, capsys, caplog):
    caplog.set_level("INFO", "lightning.pytorch")
    compile = Compile("default", backend="eager")
    fitted(tmp_path, compile, 4, 4, 2, 3, max_epochs=2)
    said = [record.getMessage() for record in caplog.records if "compiled again" in record.getMessage()]
    assert len(said) == 1
    assert "size mismatch at index 0. expected 4, actual 2" in said[0]
    assert compile.report().endswith(" s, 1 recompilation")  # the second one is for all sizes


NULL_OR_TRUE = "compile.dynamic: null or true"


@pytest.mark.parametrize(("dynamic", "advice"), [(False, NULL_OR_TRUE), (True, "graph_breaks: true")])
def test_near_the_limit_it_is_a_warning_that_says_what_to_set(tmp_path, dynamic, advice):
    class Counting(nn.Linear):
        """Multiplies by a number that changes with each call, and is no input of the compiled code."""

        calls = 0

        def forward(self, x):
            if dynamic:
                self.calls = str(int(self.calls) + 1)
            return super().forward(x.flatten(1)) * float(len(str(self.calls)))

    torch.manual_seed(0)
    model = Tiny(network=Counting(192, 4))
    compile = Compile("default", backend="eager", dynamic=dynamic)
    trainer = make_trainer(tmp_path, callbacks=[compile], limit_val_batches=0)
    sizes = (4, 4, 4) if dynamic else (2, 3, 4)
    with torch._dynamo.config.patch(recompile_limit=4), pytest.warns(UserWarning, match="after 4 it runs") as found:
        trainer.fit(model, batches_of(*sizes))
    assert advice in next(str(warning.message) for warning in found if "compile:" in str(warning.message))
    assert "LIMIT" not in compile.report()


def test_reaching_the_limit_is_loud_and_changes_no_result(tmp_path):
    compile = Compile("default", backend="eager", dynamic=False)
    summary = RunSummary()
    torch.manual_seed(0)
    model = Tiny(network=network())
    trainer = make_trainer(tmp_path, callbacks=[compile, summary], limit_val_batches=0)
    with torch._dynamo.config.patch(recompile_limit=2), pytest.warns(UserWarning, match="LIMIT REACHED") as found:
        trainer.fit(model, batches_of(2, 3, 4, 5, 2))
    text = next(str(warning.message) for warning in found if "LIMIT REACHED" in str(warning.message))
    assert "was compiled 2 times" in text
    assert "expected 3, actual 4" in text
    assert NULL_OR_TRUE in text
    assert "LIMIT REACHED" in row(text_of(summary), "compile")
    plain = fitted(tmp_path, Compile(), 2, 3, 4, 5, 2)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-6)


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
