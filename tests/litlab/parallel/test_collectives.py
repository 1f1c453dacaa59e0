"""What processes send to each other in a training step: what the strategy needs, and nothing else."""

import json

import pytest

from tests.litlab.parallel import program

PROGRAM = """
import json, sys
from collections import Counter
import torch
from lightning.pytorch import Callback, Trainer
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.parallel import ShardedStrategy
from litlab.runs.signals import StopSignals
from tests.litlab.parallel.tiny import Tokens, classifier

class Count(Callback):
    def on_train_batch_start(self, trainer, module, batch, number):
        if number == 2:  # the first steps rebuild DDP's buckets
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.start()

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if number == 5:
            self.profiler.stop()
            names = (event.name for event in self.profiler.events())
            self.found = Counter(name for name in names if name.startswith("c10d::"))

found = {}
for name, strategy in {"ddp": "ddp", "fsdp2": ShardedStrategy(), "tensor": ShardedStrategy(2)}.items():
    count = Count()
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_steps=6, max_epochs=1, logger=False, limit_val_batches=0,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0,
        callbacks=[count, ExactResume(), StopSignals(), RunCheckpoint(sys.argv[1], every_minutes=None)],
    )
    trainer.fit(classifier(), Tokens(batch_size=8))
    found[name] = count.found
if trainer.is_global_zero:
    json.dump(found, open(sys.argv[1] + "/found.json", "w"))
"""
STEPS, BLOCKS = 4, 4


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict[str, int]]:
    folder = tmp_path_factory.mktemp("collectives")
    (folder / "program.py").write_text(PROGRAM)
    program.wait(program.start(folder / "program.py", 2, folder))
    return json.loads((folder / "found.json").read_text())


def test_ddp_sums_the_gradients_once(found):
    assert found["ddp"] == {"c10d::allreduce_": STEPS}


def test_fsdp2_gathers_weights_twice_and_scatters_gradients_once(found):
    """In each block, and in what is outside of the blocks, whose weights stay until the backward pass."""
    assert found["fsdp2"] == {
        "c10d::_allgather_base_": STEPS * (2 * BLOCKS + 1),
        "c10d::_reduce_scatter_base_": STEPS * (BLOCKS + 1),
    }


def test_tensor_parallel_sums_four_activations_in_each_block(found):
    assert found["tensor"] == {"c10d::allreduce_": STEPS * 4 * BLOCKS}
