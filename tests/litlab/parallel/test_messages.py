"""What two processes send to each other in a training step, and that both stop after the same batch."""

import json

import pytest

from litlab.checkpointing.io import AtomicCheckpointIO
from tests.litlab.parallel import program

PROGRAM = """
import json, os, signal, sys, time
from collections import Counter
import torch
from lightning.pytorch import Callback, Trainer
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.sharded import ShardedCheckpointIO
from litlab.parallel import PipelineStrategy, ShardedStrategy
from litlab.runs.signals import StopSignals
from tests.litlab.parallel.tiny import Tokens, classifier

class Watch(Callback):
    # The second process gets the signal when it begins a batch; the first one is late in the batch before.
    def on_validation_batch_end(self, trainer, module, outputs, batch, number, dataloader_idx=0):
        if number == 1 and trainer.global_rank == 0:
            time.sleep(1)

    def on_validation_batch_start(self, trainer, module, batch, number, dataloader_idx=0):
        if number == 2 and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)

    def on_train_batch_start(self, trainer, module, batch, number):
        if number == 2:  # the first steps rebuild DDP's buckets
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.start()

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if number == 5:
            self.profiler.stop()
            names = (event.name for event in self.profiler.events())
            found = Counter(name for name in names if name.startswith("c10d::"))
            if trainer.is_global_zero:
                json.dump(found, open(sys.argv[1] + "/found.json", "w"))

strategy = {"ddp": "ddp", "pipeline": PipelineStrategy(), "tensor": ShardedStrategy(2)}.get(sys.argv[2])
trainer = Trainer(
    accelerator="cpu", devices=2, strategy=strategy or ShardedStrategy(1, True, False, True, True), max_epochs=2,
    logger=False, num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False,
    use_distributed_sampler=False, plugins=[ShardedCheckpointIO()],
    callbacks=[Watch(), ExactResume(), StopSignals(), RunCheckpoint(sys.argv[1] + "/kept", every_minutes=None)],
)
trainer.fit(classifier(), Tokens(batch_size=4))
"""
STEPS, BLOCKS = 4, 4
SENT = {
    "ddp": {"c10d::allreduce_": STEPS},  # gradients
    "fsdp2": {  # weights twice, but for those outside of the blocks
        "c10d::_allgather_base_": STEPS * (2 * BLOCKS + 1),
        "c10d::_reduce_scatter_base_": STEPS * (BLOCKS + 1),
    },
    "tensor": {"c10d::allreduce_": STEPS * 4 * BLOCKS},  # activations
}


@pytest.mark.parametrize("strategy", [*SENT, "pipeline"])
def test_they_send_what_the_strategy_needs_and_stop_together(tmp_path, strategy):
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = program.wait(program.start(tmp_path / "program.py", 2, tmp_path, strategy), code=143)
    last = tmp_path / "kept/last.ckpt"
    steps = AtomicCheckpointIO().load_checkpoint(last)["global_step"]
    assert f"SIGTERM: stopped after {steps} optimizer steps; they are in {last}" in printed[0]
    if strategy in SENT:
        assert json.loads((tmp_path / "found.json").read_text()) == SENT[strategy]
