"""A signal within a validation that two processes compute together, while a checkpoint is written in the background."""

import pytest

from litlab.checkpointing.io import AtomicCheckpointIO
from tests.litlab.parallel import program

# The second process gets the signal when it begins a batch; the first one is late in the batch before.
PROGRAM = """
import os, signal, sys, time
from lightning.pytorch import Callback, Trainer
from litlab.checkpointing import sharded
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.sharded import ShardedCheckpointIO
from litlab.parallel import PipelineStrategy, ShardedStrategy
from litlab.runs.signals import StopSignals
from tests.litlab.parallel.tiny import Tokens, classifier

write = sharded.ShardWriter.write_data
sharded.ShardWriter.write_data = lambda *arguments: (time.sleep(2), write(*arguments))[1]


class Stop(Callback):
    def on_validation_batch_end(self, trainer, module, outputs, batch, number, dataloader_idx=0):
        if number == 1 and trainer.global_rank == 0:
            time.sleep(1)

    def on_validation_batch_start(self, trainer, module, batch, number, dataloader_idx=0):
        if number == 2 and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)


strategy = PipelineStrategy() if sys.argv[2] == "pipeline" else ShardedStrategy(1, True, False, True, True)
trainer = Trainer(
    accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, logger=False, num_sanity_val_steps=0,
    enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    plugins=[ShardedCheckpointIO()],
    callbacks=[Stop(), ExactResume(), StopSignals(), RunCheckpoint(sys.argv[1] + "/kept", every_minutes=None)],
)
trainer.fit(classifier(), Tokens(batch_size=4))
"""


@pytest.mark.parametrize("strategy", ["fsdp2", "pipeline"])
def test_both_stop_after_the_same_batch_and_the_checkpoint_is_complete(tmp_path, strategy):
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = program.wait(program.start(tmp_path / "program.py", 2, tmp_path, strategy), code=143)
    last = tmp_path / "kept/last.ckpt"
    steps = AtomicCheckpointIO().load_checkpoint(last)["global_step"]
    assert f"SIGTERM: stopped after {steps} optimizer steps; they are in {last}" in printed[0]
