"""A network of timm by YAML: its first convolution and its head are fitted, and its runs may name it."""

import pytest

from tests.conftest import CONFIGS

pytest.importorskip("timm")


def test_it_is_fitted_trained_and_tested_again(run, short):
    config = CONFIGS / "cifar.yaml"
    network = '{"class_path": "timm.create_model", "init_args": {"model_name": "resnet10t", "pretrained": false}}'
    model = ["--model=Classifier", f"--model.network={network}", "--model.optimizer=torch.optim.AdamW"]
    done = run("fit", "--config", config, *short(config), *model, "--data.mode=L", "--test_after_fit=false")
    assert done.code == 0, done.err
    assert "test/acc" in run("test", "--run=last").out
