"""What is said when the memory was not enough."""

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from litlab.preflight.out_of_memory import out_of_memory_advice


class Data(LightningDataModule):
    def __init__(self, batch_size: int | None = 64, image_size: tuple[int, int] | None = None, max_tokens: int = 0):
        super().__init__()
        self.save_hyperparameters()


class Wide(LightningModule):
    def __init__(self, width: int = 128):
        super().__init__()
        self.save_hyperparameters()


def trainer(data: Data, **settings) -> Trainer:
    built = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)
    built.datamodule = data
    built.strategy._lightning_module = Wide()
    return built


def advice(*arguments, **settings) -> str:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55)  # what the CPU's allocator says
    found = out_of_memory_advice(raised.value, trainer(*arguments, **settings))
    assert found is not None
    assert "\n" not in found
    return found


@pytest.fixture
def units(monkeypatch):
    monkeypatch.setattr("litlab.preflight.out_of_memory.has_fast_bfloat16", lambda device: True)


@pytest.mark.usefixtures("units")
def test_the_three_flags_that_help_most():
    text = advice(Data(image_size=(32, 48)), accumulate_grad_batches=3)
    assert "out of memory (peak " in text
    assert " GiB of the host's memory): try --data.batch_size 32 --trainer.accumulate_grad_batches 6, " in text
    assert "--trainer.precision bf16-mixed, --data.image_size '[16, 24]'." in text
    assert text.endswith(" The first works with --resume too, from the end of an epoch.")


@pytest.mark.usefixtures("units")
def test_only_what_the_run_has_and_has_not_done_yet():
    text = advice(Data(batch_size=None, max_tokens=512), precision="bf16-mixed")
    assert text.endswith("try --data.max_tokens 256.")
    assert advice(Data(batch_size=None)).endswith("try --trainer.precision bf16-mixed, --model.width 64.")


def test_no_precision_that_the_cpu_has_to_emulate(monkeypatch):
    monkeypatch.setattr("litlab.preflight.out_of_memory.has_fast_bfloat16", lambda device: False)
    assert "precision" not in advice(Data())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError(), RuntimeError("MPS backend out of memory")]
)
def test_every_kind_of_device(error):
    assert "--data.batch_size" in out_of_memory_advice(error, None)


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("out of memory"), KeyboardInterrupt()])
def test_other_errors_are_none_of_it(error):
    assert out_of_memory_advice(error, None) is None
