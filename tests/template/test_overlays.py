"""Every overlay runs by itself with one experiment, some in a stack, and does what it says."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
import torch._dynamo.utils

from tests.conftest import CONFIGS, Outcome, settings_of, shell
from tests.template.overlays import (
    EFFECTS,
    OF_CLASSIFIERS,
    SMALL,
    callbacks_of,
    checkpoint_of,
    config_of,
)

# What an experiment has to give up for an overlay, which says so in one line without it.
GIVEN_UP = {
    "fused": {"cifar": "--model.optimizer=torch.optim.AdamW"},
    "optimizer_in_backward": {
        "forecast": "--trainer.gradient_clip_val=null",
        "text": "--trainer.gradient_clip_val=null",
    },
    "swa": {"forecast": "--ema=null", "text": "--ema=null"},
}
FEWER = {  # steps of a search, or between measurements
    "batch_size_finder": ["--trainer.callbacks.max_val=32"],
    "lr_finder": ["--trainer.callbacks.num_training_steps=30"],
    "noise_scale": ["--trainer.callbacks.every_n_steps=2"],
}
STACK = ("bf16", "accumulate", "clip", "ema", "deterministic", "smoke")
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
COMPILED = {"compile", "compile_blocks", "compile_dynamic", "graph_breaks"}
FIRST = [pytest.param(name, marks=[] if name == "cifar" else pytest.mark.matrix) for name in SMALL]


@pytest.fixture
def fit(run, short, tmp_path) -> Callable[..., tuple[Path, Outcome]]:
    """Fits an experiment with overlays for a few steps; returns its folder and what it printed."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.use_deterministic_algorithms(False)

    def fit_small(experiment: str, overlays: Iterable[str], *flags: str) -> tuple[Path, Outcome]:
        base, over = CONFIGS / f"{experiment}.yaml", [CONFIGS / f"with/{name}.yaml" for name in overlays]
        small = [*short(base), *SMALL[experiment], "--trainer.limit_train_batches=8", "--test_after_fit=false", *flags]
        fewer = [flag for name in overlays for flag in FEWER.get(name, ())]
        done = run("fit", "--config", base, *small, *(part for path in over for part in ("--config", path)), *fewer)
        assert done.code == 0, done.err
        name = "smoke" if "smoke" in overlays else experiment
        folder = tmp_path / f"lightning_logs/{name}/version_0"
        assert callbacks_of(settings_of(base)) <= callbacks_of(config_of(folder))
        return folder, done

    yield fit_small
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.filterwarnings("ignore:.*AMP with fp16 is not supported on CPU")  # it says what it does instead
@pytest.mark.parametrize(("number", "overlay"), list(enumerate(sorted(EFFECTS.keys() - COMPILED))), ids=str)
def test_overlay(fit, number, overlay):
    needs_images = {*OF_CLASSIFIERS, "qat", "channels_last", "activation_checkpointing"}
    experiment = "cifar" if overlay in needs_images else tuple(SMALL)[number % len(SMALL)]
    # torchao compiles its step, seconds for each shape; tests/litlab/optim has what it does.
    with torch.compiler.set_stance("force_eager" if overlay == "adamw8bit" else "default"):
        folder, done = fit(experiment, [overlay], *filter(None, [GIVEN_UP.get(overlay, {}).get(experiment)]))
    assert EFFECTS[overlay](folder, done), config_of(folder)


@pytest.mark.parametrize(
    ("experiment", "overlay", "keys"),
    [
        ("linear", "muon", ["model.optimizer"]),
        ("cifar", "fused", ["model.optimizer", "fused"]),
        ("linear", "warm_restarts", ["model.schedule"]),
        ("text", "swa", ["swa", "ema"]),
        ("text", "mixup", ["mixup", "image_shape"]),
        ("forecast", "tta", ["model.flip_tta", "LSTMForecaster"]),
        ("cifar_vgg", "activation_checkpointing", ["activation_checkpointing.blocks", "model.network"]),
        ("linear", "adamw8bit", ["model.optimizer"]),
        ("text", "optimizer_in_backward", ["trainer.callbacks", "trainer.gradient_clip_val"]),
        ("linear", "compile_blocks", ["compile.children", "LinearRegression has no blocks"]),
        pytest.param("cifar", "compile_reduce_overhead", ["compile.mode", "needs a CUDA GPU"], marks=WITHOUT_GPU),
    ],
)
def test_an_overlay_that_does_not_fit_says_so_in_one_line(run, short, tmp_path, experiment, overlay, keys):
    config = CONFIGS / f"{experiment}.yaml"
    done = run("fit", "--config", config, *short(config), "--config", CONFIGS / f"with/{overlay}.yaml")
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert (done.code, len(errors)) == (2, 1), done.err
    assert all(key in errors[0] for key in keys), errors
    if keys[0] not in (
        "trainer.callbacks",
        "compile.children",
        "compile.mode",
    ):  # which are set up last, when the run is on record
        assert not list(tmp_path.glob("lightning_logs/*/*"))


BLOCKS_AND_SHAPES = [("cifar", ["compile_blocks"]), ("text", ["compile_dynamic"])]
GRAPH_BREAKS = [pytest.param(name, ["compile", "graph_breaks"], marks=pytest.mark.matrix) for name in SMALL]


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
@pytest.mark.parametrize(("experiment", "overlays"), [*BLOCKS_AND_SHAPES, *GRAPH_BREAKS], ids=str)
def test_compile_overlays(fit, experiment, overlays):
    """What a backend does with the graphs is torch's; tests/litlab/callbacks trains with inductor."""
    flags = ["--compile.backend=eager", "--compile.graph_breaks=true", "--data.batch_size=20"]
    folder, done = fit(experiment, overlays, *flags)
    for name in ("graph_breaks", *overlays):
        assert EFFECTS[name](folder, done), config_of(folder)
    sizes_compiled_again = "size mismatch" in done.err
    if overlays in (["compile_blocks"], ["compile_dynamic"]):  # the last batch of images is smaller
        assert sizes_compiled_again == (overlays == ["compile_blocks"])


@pytest.mark.matrix
def test_max_autotune(run):
    """With inductor, as the overlay is."""
    config, overlay = CONFIGS / "linear.yaml", CONFIGS / "with/compile_max_autotune.yaml"
    done = run("fit", "--config", config, "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--config", overlay)
    if "No working C++ compiler" in done.err:
        pytest.skip(done.err)
    assert done.code == 0, done.err
    assert "│ compile" in done.out


@pytest.mark.parametrize("experiment", FIRST)
def test_overlays_stack(fit, experiment):
    folder, done = fit(experiment, STACK)
    assert "Using bfloat16 Automatic Mixed Precision" in done.err
    assert torch.are_deterministic_algorithms_enabled()
    trainer = config_of(folder)["trainer"]
    assert (trainer["accumulate_grad_batches"], trainer["gradient_clip_val"]) == (4, 1.0)
    assert checkpoint_of(folder)["global_step"] == 1
    assert "current_model_state" in checkpoint_of(folder)  # EMA


def test_ddp_overlay_trains_the_same_network_on_both_processes_and_profile_each(short, tmp_path):
    config, overlays = CONFIGS / "cifar.yaml", [CONFIGS / f"with/{name}.yaml" for name in ("ddp", "profile")]
    small = [*short(config), *SMALL["cifar"], *(part for path in overlays for part in ("--config", path))]
    done = shell("fit", "--config", config, *small, "--test_after_fit=false", cwd=tmp_path)
    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "lightning_logs/cifar").iterdir()] == ["version_0"]
    checkpoint = checkpoint_of(tmp_path / "lightning_logs/cifar/version_0")
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (4, 20)  # 160 images in 5 steps of both
    assert checkpoint["state_dict"]["network.whitened"]
    assert done.out.count("Where the time of a training step goes") == 1
    for rank in (0, 1):
        profile = tmp_path / f"lightning_logs/cifar/version_0/fit-profile-{rank}.txt"
        assert re.search(r"^backward +[1-9]", profile.read_text(), re.MULTILINE)
        assert "c10d::allreduce_" in profile.with_suffix(".trace.json").read_text()
