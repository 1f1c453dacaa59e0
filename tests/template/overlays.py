"""What the tests of configs and overlays share: small experiments, and what each overlay must be
seen to have done.
"""

from pathlib import Path

import torch
import torch._dynamo.utils
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# For each experiment a small model, and batches small enough for 8 steps of one epoch.
SMALL = {
    "cifar": ["--model.width=16", "--model.small_image_fraction=0", "--data.batch_size=16"],
    "text": ["--model.network.embed_dim=16", "--data.batch_size=12"],
    "forecast": ["--model.network.hidden_size=16", "--data.batch_size=32"],
    "cifar_vgg": [
        "--model.network.widths=[4, 4, 4]",
        "--model.network.hidden=[]",
        "--data.batch_size=20",
    ],
}
# What an overlay must be seen to have done, by the run folder and what was printed, after 8 steps.
EFFECTS = {
    "agc": lambda folder, done: config_of(folder)["agc"]["init_args"]["factor"] == 0.1,
    "batch_size_finder": lambda folder, done: "Finished batch size finder" in done.err,
    "lr_finder": lambda folder, done: (folder / "lr_finder.png").is_file(),
    "tta": lambda folder, done: (
        (_model(folder)["flip_tta"], _model(folder)["shift_tta"]) == (True, 1)
    ),
    # All in the first epoch
    "accumulate_schedule": lambda folder, done: checkpoint_of(folder)["global_step"] == 8,
    "activation_checkpointing": lambda folder, done: (
        "computed again in the backward pass" in done.err
    ),
    "adamw8bit": lambda folder, done: (
        "block_size" in config_of(folder)["model"]["init_args"]["optimizer"]["init_args"]
    ),
    "compile": lambda folder, done: torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0,
    "ema": lambda folder, done: "current_model_state" in checkpoint_of(folder),
    "grad_norms": lambda folder, done: "grad_norm/total" in _curves(folder),
    "noise_scale": lambda folder, done: "noise_scale/trace" in _curves(folder),
    "graph_breaks": lambda folder, done: (
        "[__graph_breaks]" in done.err or "[__recompiles]" in done.err
    ),
    "muon": lambda folder, done: {g["method"] for g in _groups(folder)} == {"muon", "adamw"},
    "one_cycle": lambda folder, done: checkpoint_of(folder)["lr_schedulers"][0]["total_steps"] == 8,
    "plateau": lambda folder, done: "num_bad_epochs" in checkpoint_of(folder)["lr_schedulers"][0],
    "memory_snapshot": lambda folder, done: "MemorySnapshot: " in done.err,
    "profile": lambda folder, done: (
        "waiting for data" in done.out and (folder / "fit-profile.pt.trace.json").is_file()
    ),
    "optimizer_in_backward": lambda folder, done: config_of(folder)["nan_guard"] is None,
    "qat": lambda folder, done: len(checkpoint_of(folder)["callbacks"]["QAT"]) > 3,
    "smoke": lambda folder, done: checkpoint_of(folder)["global_step"] == 2,
    "swa": lambda folder, done: checkpoint_of(folder)["averaging_state"]["n_averaged"] == 1,
    "warm_restarts": lambda folder, done: checkpoint_of(folder)["lr_schedulers"][0]["T_mult"] == 2,
}

# The same of flags; further ones are Lightning's, or tests/litlab has what they do.
FLAGS = {
    "--compile.dynamic=true": lambda folder, done: "size mismatch" not in done.err,
    "--trainer.precision=bf16-true": lambda folder, done: torch.bfloat16 in _types(folder),
    "--channels_last=true": lambda folder, done: _has_channels_last(folder),
    "--model.members=2": lambda folder, done: any(
        "members.1" in key for key in checkpoint_of(folder)["state_dict"]
    ),
    # Each batch is of one size but the last
    "--compile.blocks=true": lambda folder, done: "size mismatch" in done.err,
}


def config_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def _model(folder: Path) -> dict:
    return config_of(folder)["model"]["init_args"]


def checkpoint_of(folder: Path) -> dict:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def _groups(folder: Path) -> list[dict]:
    return checkpoint_of(folder)["optimizer_states"][0]["param_groups"]


def _curves(folder: Path) -> list[str]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events.Tags()["scalars"]


def _has_channels_last(folder: Path) -> bool:
    weights = checkpoint_of(folder)["state_dict"].values()
    return any(weight.ndim == 4 and not weight.is_contiguous() for weight in weights)


def _types(folder: Path) -> set[torch.dtype]:
    checkpoint = checkpoint_of(folder)
    return {
        value.dtype
        for value in checkpoint.get("current_model_state", checkpoint["state_dict"]).values()
    }


def callbacks_of(config: dict) -> set[str]:
    return {callback["class_path"].rsplit(".")[-1] for callback in config["trainer"]["callbacks"]}
