import pytest
import yaml

from litlab.errors import UserError
from litlab.runs.missing_classes import check_classes
from tests.litlab.runs.make import write_run

THERE = "auks.images.MNASNet"


def config(data: str, network: str = THERE) -> dict:
    model = {"class_path": "litlab.tasks.Classifier", "init_args": {"network": {"class_path": network}}}
    return {"model": model, "data": {"class_path": data}}


def test_classes_that_are_there_pass(tmp_path):
    check_classes(None, "x", config("litlab.data.ImageData"))
    check_classes(None, "x", config("elsewhere.Data"))  # what other packages have is found out when it is imported


@pytest.mark.parametrize(
    ("gone", "data", "network"),
    [
        ("auks.data.images.ImageData", "auks.data.images.ImageData", THERE),  # nor the package above it
        ("litlab.data.NoData", "litlab.data.NoData", THERE),
        ("auks.networks.VGG", "litlab.data.ImageData", "auks.networks.VGG"),
    ],
)
def test_a_run_of_another_version_says_which(tmp_path, gone, data, network):
    run = write_run(tmp_path, "cifar/version_0", versions={"python": "3.11", "auks": "0.0.9"})
    with pytest.raises(UserError) as refused:
        check_classes(run, "cifar/version_0", config(data, network))
    assert str(refused.value) == (
        f"cifar/version_0 was written by version 0.0.9 of the code: it names {gone}, which no longer exists; "
        "git checkout 1234567890 to use it."
    )
    run.provenance.write_text("{")
    with pytest.raises(UserError, match="was written by another version of the code: it names"):
        check_classes(run, "cifar/version_0", config(data, network))


def test_test_refuses_it_in_a_line(run, tmp_path):
    made = write_run(tmp_path / "lightning_logs", "cifar/version_0")
    (made.checkpoints / "last.ckpt").unlink()
    (made.checkpoints / "mine.ckpt").touch()
    settings = {"trainer": {}, "ckpt_path": None, "model": {"class_path": "auks.models.SmallCNN"}, "data": {}}
    made.config.write_text(yaml.safe_dump(settings))
    done = run("test", "--run", made.path, "--ckpt_path", made.checkpoints / "mine.ckpt")
    assert done.code == 2
    assert "cifar/version_0 was written by another version of the code: it names auks.models.SmallCNN" in done.err
