"""Two processes that share layers, of which one gets a signal, stop after the same batch."""

from litlab.checkpointing.io import AtomicCheckpointIO
from tests.litlab.parallel import program

PROGRAM = """
import os, signal, sys, time
from lightning.pytorch import Callback, Trainer
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.parallel import ShardedStrategy
from litlab.runs.signals import StopSignals
from tests.litlab.parallel.tiny import Tokens, classifier

class Signal(Callback):
    # The second process gets it when it begins a batch; the first one is late in the batch before.
    def on_validation_batch_end(self, trainer, module, outputs, batch, number, dataloader_idx=0):
        if number == 1 and trainer.global_rank == 0:
            time.sleep(1)

    def on_validation_batch_start(self, trainer, module, batch, number, dataloader_idx=0):
        if number == 2 and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)

trainer = Trainer(
    accelerator="cpu", devices=2, strategy=ShardedStrategy(2), logger=False, num_sanity_val_steps=0,
    enable_progress_bar=False, use_distributed_sampler=False,
    callbacks=[
        Signal(), ExactResume(), StopSignals(),
        RunCheckpoint(sys.argv[1] + "/kept", every_minutes=None),
    ],
)
trainer.fit(classifier(), Tokens(batch_size=8))
"""


def test_both_stop_and_keep_what_there_is(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = program.wait(program.start(tmp_path / "program.py", 2, tmp_path), code=143)
    last = tmp_path / "kept/last.ckpt"
    steps = AtomicCheckpointIO().load_checkpoint(last)["global_step"]
    assert f"SIGTERM: stopped after {steps} optimizer steps; they are in {last}" in printed[0]
