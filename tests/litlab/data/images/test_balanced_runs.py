"""Runs on a folder with 12, 4 and 1 training images of a class."""

import csv
import shutil

import pytest
import torch

from tests.litlab.conftest import CONFIGS

COUNTS = {"class_0": 12, "class_4": 4, "class_9": 1}
BRIEF = ("--data.dataset=folder", "--data.batch_size=6", "--trainer.accelerator=cpu", "--trainer.max_epochs=1")


@pytest.fixture
def uneven(images, tmp_path):
    for split in ("train", "val", "test"):
        for name, count in COUNTS.items():
            (tmp_path / "uneven" / split / name).mkdir(parents=True)
            for file in sorted((images / split / name).iterdir())[: count if split == "train" else None]:
                shutil.copy(file, tmp_path / "uneven" / split / name)
    return tmp_path / "uneven"


def test_a_balanced_run_reports_each_class(run, uneven, tmp_path):
    done = run(
        "fit", "--config", CONFIGS / "images.yaml", f"--data.path={uneven}", *BRIEF, "--data.balance=sqrt",
        "--trainer.callbacks=[ConfusionMatrix]",
    )  # fmt: skip
    assert done.code == 0, done.err
    with (tmp_path / "lightning_logs/images/version_0/classes.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["class"]: row["test samples"] for row in rows} == dict.fromkeys(("class_0", "class_4", "class_9"), "5")
    assert "Test: each class" in done.out
    # A network that has not learned names one class: the others have no precision, and no F1 above 0.
    assert all(0 <= float(row["recall"]) <= 1 for row in rows)


def test_class_weights_are_those_of_the_data_and_in_the_checkpoint(run, uneven, tmp_path):
    done = run(
        "fit", "--config", CONFIGS / "images.yaml", f"--data.path={uneven}", *BRIEF, "--model.class_weights=even",
    )  # fmt: skip
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/images/version_0"
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    expected = 17 / 3 / torch.tensor(list(COUNTS.values()), dtype=torch.float32)
    torch.testing.assert_close(checkpoint["state_dict"]["class_weights"], expected)
    assert run("test", "--run", folder).code == 0
