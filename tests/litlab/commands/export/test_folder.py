"""What a folder keeps of a checkpoint, and a script that must work."""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from litlab.commands.export.folder import strip_checkpoint, write_folder
from litlab.errors import UserError
from tests.litlab.commands.export.test_graph import Rows


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


def test_a_script_that_fails_in_a_process_of_its_own_is_refused(tmp_path):
    """Here the graph is missing."""
    experiment, manifest = SimpleNamespace(checkpoint={}), {"format": "onnx", "versions": {}}
    with pytest.raises(UserError, match=r"^export: use\.py fails without this project \(.*model\.onnx"):
        write_folder(tmp_path, experiment, Rows(), lambda arrays: [np.ones((2, 1))], manifest)
