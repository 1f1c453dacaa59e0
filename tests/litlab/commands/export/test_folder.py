"""What a folder keeps of a checkpoint."""

from types import SimpleNamespace

import yaml

from litlab.commands.export.folder import strip_checkpoint


def test_settings_stay_and_weights_and_secrets_do_not():
    logger = {"class_path": "auks.Logger", "init_args": {"api_key": "k3y-of-mine", "project": "mine"}}
    checkpoint = {
        "state_dict": {"weight": 1}, "optimizer_states": [1], "epoch": 3, "Data": {"mean": 2.0}, "own": 5,
        "config": yaml.safe_dump({"trainer": {"logger": logger}, "data": {"path": "ähren.csv"}}),
        "hyper_parameters": {"width": 3, "hf_token": "hf_abcdefghijklmnopqrstu"},
    }  # fmt: skip
    kept = strip_checkpoint(SimpleNamespace(checkpoint=checkpoint))
    assert kept["state_dict"] == {}
    assert set(kept) == {"state_dict", "epoch", "Data", "own", "config", "hyper_parameters"}
    assert (kept["epoch"], kept["Data"], kept["own"]) == (3, {"mean": 2.0}, 5)
    config = yaml.safe_load(kept["config"])
    assert config["trainer"]["logger"]["init_args"] == {"api_key": "***", "project": "mine"}
    assert config["data"]["path"] == "ähren.csv"
    assert kept["hyper_parameters"] == {"width": 3, "hf_token": "***"}
