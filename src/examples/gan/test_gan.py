"""The generative adversarial network, trained through the command line."""

from pathlib import Path

import torch

from litlab.runs.folder import read_json

CONFIG = Path(__file__).with_name("config.yaml")


def test_both_networks_learn(run, tmp_path):
    fit = f"fit --config {CONFIG} --trainer.log_every_n_steps=5"
    run(f"{fit} --trainer.max_epochs=1 --trainer.limit_train_batches=5").check()
    run(f"{fit} --trainer.max_epochs=12").check()
    runs = [tmp_path / f"lightning_logs/gan/version_{number}" for number in range(2)]
    untrained, trained = (read_json(run / "metrics.json")["test"]["test/distance"] for run in runs)
    assert trained < untrained / 2
    assert (runs[1] / "generated.png").is_file()

    first, last = (torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in runs)
    before, after = first["state_dict"], last["state_dict"]
    assert not any(weight.equal(before[name]) for name, weight in after.items())
    assert len(last["optimizer_states"]) == 2
