"""Train the small Transformer with one strategy after another, in each of some processes; not a test itself.

    python program.py FOLDER '{"NAME": {"strategy": "fsdp2", "steps": 50, ...}, ...}'

writes FOLDER/NAME.json and FOLDER/NAME.ckpt. BATCH samples are a step's, whatever the number of processes is.
"""

import json
import sys
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from litlab.cli.experiment_cli import ExperimentCLI  # noqa: F401 - registers the strategies
from litlab.checkpointing.exact_resume import ExactResume
from litlab.parallel import ShardedStrategy
from tests.litlab.parallel.tiny import Losses, Tokens, classifier

BATCH = 24


def run(folder: Path, name: str, world: int, strategy: str = "ddp", steps: int = 50, resume: str | None = None,
        model: dict | None = None, fits: bool = True, callbacks: tuple = (), **options) -> None:  # fmt: skip
    sizes = {"fsdp2": 1, "tp": world, "both": 2}
    chosen = ShardedStrategy(sizes[strategy]) if strategy in sizes else strategy
    replicas = sizes.get(strategy, 1)
    losses = Losses()
    batch = BATCH * replicas // world // options.get("accumulate_grad_batches", 1)
    torch.manual_seed(0)
    trainer = Trainer(
        accelerator="cpu", devices=world, strategy="auto" if world == 1 else chosen, max_steps=steps, max_epochs=-1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, num_sanity_val_steps=0, callbacks=[losses, ExactResume()], **options,
    )  # fmt: skip
    module, data = classifier(**(model or {})), Tokens(batch_size=batch)
    if fits:
        trainer.fit(module, data, ckpt_path=resume, weights_only=True)
        trainer.save_checkpoint(folder / f"{name}.ckpt")
        metrics = trainer.validate(module, data, verbose=False)[0]
    else:
        metrics = trainer.validate(module, data, ckpt_path=resume, weights_only=True, verbose=False)[0]
    metrics |= trainer.test(module, data, verbose=False)[0]
    if trainer.is_global_zero:
        (folder / f"{name}.json").write_text(json.dumps({"losses": losses.values, "metrics": metrics}))


if __name__ == "__main__":
    import os

    world = int(os.environ.get("WORLD_SIZE", 1))
    for name, case in json.loads(sys.argv[2]).items():
        run(Path(sys.argv[1]), name, world, **case)
