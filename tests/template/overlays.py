"""What the tests of configs and overlays share: small experiments, and what each overlay must be
seen to have done.
"""

from pathlib import Path

import torch
import torch._dynamo.utils
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import Outcome

# For experiments a small model, and batches small enough for 8 steps of one epoch.
TEXT = "--model.network.embed_dim=16 --model.members=1 --data.batch_size=12".split()
SMALL = {
    "cifar": ["--model.width=16", "--model.small_image_fraction=0", "--data.batch_size=16"],
    "cifar_vgg": ["--model.network.widths=[4,4,4]", "--model.network.hidden=[]",
                  "--data.batch_size=20"],
    "forecast": ["--model.network.hidden_size=16", "--data.batch_size=32"],
    "language_model": ["--model.length=2"],
    "operators": TEXT,
    "text": TEXT,
    "transfer": ["--trainer.limit_train_batches=1"],
}  # fmt: skip


def config_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def checkpoint_of(folder: Path) -> dict:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def callbacks_of(config: dict) -> set[str]:
    return {callback["class_path"].rsplit(".")[-1] for callback in config["trainer"]["callbacks"]}


class Fitted:
    """What a fit has left and printed."""

    def __init__(self, folder: Path, done: Outcome) -> None:
        self.folder, self.out, self.err = folder, done.out, done.err
        self.config, self.last = config_of(folder), checkpoint_of(folder)
        self.model = self.config["model"]["init_args"]
        # Of the EMA, where there is one
        self.weights = self.last.get("current_model_state", self.last["state_dict"]).values()
        self.groups = self.last["optimizer_states"][0]["param_groups"]
        self.schedule = next(iter(self.last["lr_schedulers"]), {})
        events = EventAccumulator(str(folder))
        events.Reload()
        self.curves = events.Tags()["scalars"]


# What an overlay must be seen to have done, after 8 steps.
EFFECTS = {
    "agc": lambda run: run.config["agc"]["init_args"]["factor"] == 0.1,
    "batch_size_finder": lambda run: "Finished batch size finder" in run.err,
    "lr_finder": lambda run: (run.folder / "lr_finder.png").is_file(),
    "tta": lambda run: run.model["flip_tta"] and run.model["shift_tta"] == 1,
    # All in the first epoch
    "accumulate_schedule": lambda run: run.last["global_step"] == 8,
    "activation_checkpointing": lambda run: "computed again in the backward pass" in run.err,
    "adamw8bit": lambda run: "block_size" in run.model["optimizer"]["init_args"],
    "compile": lambda run: torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0,
    "ema": lambda run: "current_model_state" in run.last,
    "grad_norms": lambda run: "grad_norm/total" in run.curves,
    "noise_scale": lambda run: "noise_scale/trace" in run.curves,
    "graph_breaks": lambda run: "[__graph_breaks]" in run.err or "[__recompiles]" in run.err,
    "muon": lambda run: {group["method"] for group in run.groups} == {"muon", "adamw"},
    "one_cycle": lambda run: run.schedule["total_steps"] == 8,
    "plateau": lambda run: "num_bad_epochs" in run.schedule,
    "memory_snapshot": lambda run: "MemorySnapshot: " in run.err,
    "profile": lambda run: (
        "waiting for data" in run.out and (run.folder / "fit-profile.pt.trace.json").is_file()
    ),
    "optimizer_in_backward": lambda run: run.config["nan_guard"] is None,
    "qat": lambda run: len(run.last["callbacks"]["QAT"]) > 3,
    "smoke": lambda run: (run.folder.parent.name, run.last["global_step"]) == ("smoke", 2),
    "swa": lambda run: run.last["averaging_state"]["n_averaged"] == 1,
    "warm_restarts": lambda run: run.schedule["T_mult"] == 2,
}

# The same of flags; further ones are Lightning's, or tests/litlab has what they do.
FLAGS = {
    "--compile.dynamic=true": lambda run: "size mismatch" not in run.err,
    "--trainer.precision=bf16-true": lambda run: torch.bfloat16 in {w.dtype for w in run.weights},
    "--channels_last=true": lambda run: any(
        weight.ndim == 4 and not weight.is_contiguous() for weight in run.weights
    ),
    "--model.members=2": lambda run: any("members.1" in key for key in run.last["state_dict"]),
    # Each batch is of one size but the last
    "--compile.blocks=true": lambda run: "size mismatch" in run.err,
}
