"""Private parts of Lightning that the callbacks and the profiler use: a new version that renames one fails here."""

import inspect

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import TQDMProgressBar

from litlab.callbacks import ProgressBar, StepProfiler


@pytest.mark.parametrize("stage", ["train", "val", "test", "predict"])
def test_bars_ask_whether_to_draw(stage):
    hook = "validation" if stage == "val" else stage
    source = inspect.getsource(getattr(TQDMProgressBar, f"on_{hook}_batch_end"))
    assert f"self._should_update(n, self.{stage}_progress_bar.total)" in source
    overridden = inspect.signature(ProgressBar._should_update)
    assert overridden == inspect.signature(TQDMProgressBar._should_update)


def test_a_second_trainer_leaves_signals_alone():
    """What `train_copy` of litlab/callbacks/second_trainer.py replaces."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    assert hasattr(trainer._signal_connector, "register_signal_handlers")


def test_a_profiler_knows_its_stage_and_names_its_files():
    profiler = StepProfiler()
    assert profiler._stage is None
    profiler.setup("fit", local_rank=1)
    assert profiler._stage == "fit"
    assert profiler._prepare_filename(extension=".trace.json") == "fit-profile-1.trace.json"
