"""What a folder keeps of a checkpoint."""

from types import SimpleNamespace

import yaml

from litlab.commands.export.folder import strip_checkpoint


def test_settings_stay_and_weights_and_secrets_do_not():
    logger = {"class_path": "auks.Logger", "init_args": {"api_key": "k3y-of-mine", "project": "mine"}}
    settings = {"trainer": {"logger": logger}, "data": {"path": "ähren.csv"}}
    checkpoint = {
        "state_dict": {"weight": 1}, "optimizer_states": [1], "epoch": 3, "Data": {"mean": 2.0},
        "config": yaml.safe_dump(settings), "hyper_parameters": {"hf_token": "hf_abcdefghijklmnopqrstu"},
    }  # fmt: skip
    kept = strip_checkpoint(SimpleNamespace(checkpoint=checkpoint))
    logger["init_args"]["api_key"] = "***"
    assert yaml.safe_load(kept.pop("config")) == settings
    assert kept == {"state_dict": {}, "epoch": 3, "Data": {"mean": 2.0}}
