"""The generative adversarial network, trained through the command line."""

import json
from pathlib import Path

import torch

CONFIG = Path(__file__).with_name("config.yaml")


def test_both_networks_learn(run, tmp_path):
    flags = ["--config", CONFIG, "--trainer.log_every_n_steps=5"]
    assert run("fit", *flags, "--trainer.max_epochs=1", "--trainer.limit_train_batches=5").code == 0
    assert run("fit", *flags, "--trainer.max_epochs=12").code == 0
    runs = [tmp_path / f"lightning_logs/gan/version_{number}" for number in range(2)]
    untrained, trained = (
        json.loads((run / "metrics.json").read_text())["test"]["test/distance"] for run in runs
    )
    assert trained < untrained / 2
    assert (runs[1] / "generated.png").stat().st_size > 1000

    first, last = (torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in runs)
    assert all(
        not weight.equal(first["state_dict"][name]) for name, weight in last["state_dict"].items()
    )
    assert len(last["optimizer_states"]) == 2
