"""Every overlay runs with an experiment and does what it says; those that go together are in one
run.
"""

import re
import shutil

import pytest
import torch
import torch._dynamo.utils

from litlab.runs.folder import read_json
from tests.conftest import CONFIGS, PACKAGE, settings_of
from tests.litlab.runs.conftest import error
from tests.processes import Python
from tests.template.overlays import EFFECTS, FLAGS, SMALL, Fitted, callbacks_of, checkpoint_of
from tests.template.test_parallel import PROCESSES

# Steps of a search, or between measurements; and what an experiment has to give up for an overlay
FEWER = {
    "adamw8bit": ["--trainer.gradient_clip_val=null"],
    "batch_size_finder": ["--trainer.callbacks.max_val=32"],
    "lr_finder": ["--trainer.callbacks.num_training_steps=30"],
    "noise_scale": ["--trainer.callbacks.every_n_steps=2"],
    "optimizer_in_backward": ["--trainer.gradient_clip_val=null"],
    "swa": ["--ema=null"],
    # inductor: tests/litlab/callbacks
    "graph_breaks": ["--compile.backend=eager", "--data.batch_size=20"],
}
RUNS = [
    ("cifar", "agc ema grad_norms one_cycle tta"),
    ("cifar", "activation_checkpointing memory_snapshot noise_scale warm_restarts"),
    ("cifar", "compile graph_breaks --compile.blocks=true"),
    ("cifar_vgg", "plateau qat --channels_last=true"),
    ("cifar_vgg", "lr_finder profile --model.members=2"),
    ("text", "muon"),
    ("text", "compile graph_breaks --compile.dynamic=true"),
    ("forecast", "accumulate_schedule swa"),
    ("forecast", "adamw8bit smoke --trainer.precision=bf16-true"),
    ("forecast", "batch_size_finder"),
    ("forecast", "optimizer_in_backward"),
]


def test_every_effect_is_looked_at():
    assert {path.stem for path in CONFIGS.glob("with/*.yaml")} == EFFECTS.keys() | PROCESSES.keys()
    assert {name for _, names in RUNS for name in names.split()} == EFFECTS.keys() | FLAGS.keys()


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
@pytest.mark.parametrize(("experiment", "names"), RUNS)
def test_overlays(run, short, tmp_path, experiment, names):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    base, names = CONFIGS / f"{experiment}.yaml", names.split()
    small = [*short(base), *SMALL[experiment], "--trainer.limit_train_batches=8"]
    over = [name if name in FLAGS else f"--config={CONFIGS}/with/{name}.yaml" for name in names]
    fewer = [flag for name in names for flag in FEWER.get(name, ())]
    # torchao compiles its step, seconds for each shape; tests/litlab/optim has what it does.
    with torch.compiler.set_stance("force_eager" if "adamw8bit" in names else "default"):
        done = run("fit --config", base, *small, "--test_after_fit=false", *over, *fewer).check()
    [folder] = tmp_path.glob("lightning_logs/*/*")
    fitted = Fitted(folder, done)
    assert callbacks_of(settings_of(base)) <= callbacks_of(fitted.config)
    assert [name for name in names if not (EFFECTS | FLAGS)[name](fitted)] == []


@pytest.mark.parametrize(
    ("experiment", "overlay", "says"),
    [
        ("linear", "muon", "model.optimizer"),
        ("forecast", "tta", "model.flip_tta: .*LSTMForecaster"),
        ("cifar_vgg", "activation_checkpointing", "activation_checkpointing.blocks: .*model.netwo"),
    ],
)
def test_an_overlay_that_does_not_fit_says_so_in_one_line(
    run, short, tmp_path, experiment, overlay, says
):
    config = CONFIGS / f"{experiment}.yaml"
    done = run("fit --config", config, *short(config), "--config", CONFIGS / f"with/{overlay}.yaml")
    assert re.search(says, error(done))
    assert not list(tmp_path.glob("lightning_logs/*/*"))


def test_ddp_trains_profiles_and_tests_one_network_in_both_processes(run, images, short, tmp_path):
    """49 images: a padded split over two processes would count one of them twice."""
    config, folder = CONFIGS / "cifar.yaml", tmp_path / "lightning_logs/cifar/version_0"
    uneven = shutil.copytree(images, tmp_path / "images")
    (uneven / "test/class_3/0.png").unlink()
    overlay = f"""
        --config {CONFIGS}/with/profile.yaml --trainer.strategy=ddp --trainer.devices=2
        --trainer.max_steps=10 --trainer.profiler.steps=3 --data.path={uneven}
        --trainer.precision=32-true --test_after_fit=true
    """.split()
    words = ["-m", PACKAGE, "fit", "--config", config, *short(config), *SMALL["cifar"], *overlay]
    process = Python(*words, cwd=tmp_path)
    out, err = process.communicate()
    assert process.wait() == 0, err
    assert [*folder.parent.iterdir()] == [folder]
    checkpoint = checkpoint_of(folder)
    # 160 images in 5 steps of both
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (2, 10)
    assert checkpoint["state_dict"]["network.whitened"]
    assert out.count("Where the time of a training step goes") == 1
    for rank in (0, 1):
        profile = folder / f"fit-profile-{rank}.txt"
        assert re.search(r"^backward +[1-9]", profile.read_text(), re.MULTILINE)
        assert "c10d::allreduce_" in profile.with_suffix(".pt.trace.json").read_text()

    shared = read_json(folder / "metrics.json")["test"]
    run("test --run=cifar --trainer.strategy=auto --trainer.devices=1").check()
    assert read_json(folder / "metrics.json")["test"] == pytest.approx(shared, rel=1e-5)
