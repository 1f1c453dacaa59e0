"""Every shipped config and every overlay runs; a new one is run by being there.

Each overlay is parsed with each experiment, runs by itself with one of them, and with the others in a stack.
"""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
import torch._dynamo.utils
import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningModule
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.cli.class_paths import find_class
from litlab.cli.start import register_classes
from litlab.cli.trust import Trust
from litlab.errors import UserError
from litlab.tasks import Classifier
from tests.conftest import CONFIGS, ROOT, Outcome, settings_of, shell
from tests.litlab.fuzz.harness import verb_parser

EXPERIMENTS = sorted(CONFIGS.glob("*.yaml"))
OVERLAYS = sorted((CONFIGS / "with").glob("*.yaml"))
# What an overlay must be seen to have done, by the run folder and what was printed, after 8 steps.
EFFECTS = {
    "agc": lambda folder, done: _config(folder)["agc"]["init_args"]["factor"] == 0.1,
    "batch_size_finder": lambda folder, done: (folder / "batch_size_fastest.yaml").is_file(),
    "cutmix": lambda folder, done: _model(folder)["cutmix"] == 1.0,
    "label_smoothing": lambda folder, done: _model(folder)["label_smoothing"] == 0.1,
    "lr_finder": lambda folder, done: (folder / "lr_finder.png").is_file(),
    "mixup": lambda folder, done: _model(folder)["mixup"] == 0.2,
    "tta": lambda folder, done: (_model(folder)["flip_tta"], _model(folder)["shift_tta"]) == (True, 1),
    "accumulate_schedule": lambda folder, done: _checkpoint(folder)["global_step"] == 8,  # all in the first epoch
    "activation_checkpointing": lambda folder, done: "are computed again in the backward pass" in done.err,
    "adamw8bit": lambda folder, done: "block_size" in _config(folder)["model"]["init_args"]["optimizer"]["init_args"],
    "accumulate": lambda folder, done: _checkpoint(folder)["global_step"] == 8 / 4,
    "amp16": lambda folder, done: "Using bfloat16 Automatic Mixed Precision" in done.err,  # the CPU's form of it
    "bf16": lambda folder, done: "Using bfloat16 Automatic Mixed Precision" in done.err,
    "channels_last": lambda folder, done: "so it changes nothing" in done.err or _has_channels_last(folder),
    "bf16_true": lambda folder, done: torch.bfloat16 in _types(folder),
    "clip": lambda folder, done: _config(folder)["trainer"]["gradient_clip_val"] == 1.0,  # clipping is Lightning's
    "clip_value": lambda folder, done: _config(folder)["trainer"]["gradient_clip_algorithm"] == "value",
    "compile": lambda folder, done: torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0,
    "compile_blocks": lambda folder, done: torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0,
    "compile_dynamic": lambda folder, done: torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0,
    "deterministic": lambda folder, done: torch.are_deterministic_algorithms_enabled(),
    "ema": lambda folder, done: "current_model_state" in _checkpoint(folder),
    "fused": lambda folder, done: all(group["fused"] for group in _groups(folder)),
    "grad_norms": lambda folder, done: "grad_norm/total" in _curves(folder),
    "graph_breaks": lambda folder, done: "graph break(s), " in (folder / "graph_breaks.txt").read_text(),
    "muon": lambda folder, done: {g["method"] for g in _groups(folder)} == {"muon", "adamw"},
    "one_cycle": lambda folder, done: _checkpoint(folder)["lr_schedulers"][0]["total_steps"] == 8,
    "plateau": lambda folder, done: "num_bad_epochs" in _checkpoint(folder)["lr_schedulers"][0],
    "memory_snapshot": lambda folder, done: "What 3 training steps" in (folder / "memory.txt").read_text(),
    "profile": lambda folder, done: "A step took" in done.out and (folder / "fit-profile.trace.json").is_file(),
    "tf32": lambda folder, done: "trainer.tf32: this CPU has no units for TF32" in done.err,
    "optimizer_in_backward": lambda folder, done: _config(folder)["nan_guard"] is None,
    "smoke": lambda folder, done: _checkpoint(folder)["global_step"] == 2,
    "swa": lambda folder, done: _checkpoint(folder)["averaging_state"]["n_averaged"] == 1,
    "warm_restarts": lambda folder, done: len(_checkpoint(folder)["lr_schedulers"][0]["_schedulers"]) == 3,
}
# What an experiment has to give up for an overlay, which says so in one line without it.
GIVEN_UP = {
    "agc": {"forecast": "--trainer.gradient_clip_val=null", "text": "--trainer.gradient_clip_val=null"},
    "fused": {"cifar": "--model.optimizer=torch.optim.AdamW"},
    "optimizer_in_backward": {
        "forecast": "--trainer.gradient_clip_val=null",
        "text": "--trainer.gradient_clip_val=null",
    },
    "swa": {"forecast": "--ema=null", "text": "--ema=null"},
}
# Experiments without the settings that an overlay sets; one line says so.
UNSET = {"linear": {"adamw8bit", "fused", "muon", "one_cycle", "plateau", "warm_restarts"}, "cifar": {"fused"}}
# For each experiment a small model, and batches small enough for 8 steps of one epoch.
SMALL = {
    "cifar": ["--model.width=16", "--model.small_image_fraction=0", "--data.batch_size=16"],
    "text": ["--model.embed_dim=16", "--data.batch_size=12"],
    "forecast": ["--model.hidden_size=16", "--data.batch_size=32"],
}
THERE = [name for name in SMALL if (CONFIGS / f"{name}.yaml").is_file()]
GUESSES = {"cifar": 10, "text": 4}  # classes
STACK = ("bf16", "accumulate", "clip", "ema", "deterministic", "smoke")
COMPILED = {"compile", "compile_blocks", "compile_dynamic", "graph_breaks"}
# Each has its own test below; that of memory_budget is in tests/litlab/callbacks/test_compile.py.
BY_THEMSELVES = {"compile_max_autotune", "compile_reduce_overhead", "ddp", "fsdp", "memory_budget", "offload"}
OF_CLASSIFIERS = {"cutmix", "label_smoothing", "mixup", "tta"}  # other models refuse them


def _config(folder: Path) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def _model(folder: Path) -> dict:
    return _config(folder)["model"]["init_args"]


def _checkpoint(folder: Path) -> dict:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def _groups(folder: Path) -> list[dict]:
    return _checkpoint(folder)["optimizer_states"][0]["param_groups"]


def _curves(folder: Path) -> list[str]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events.Tags()["scalars"]


def _has_channels_last(folder: Path) -> bool:
    filters = [weight for weight in _checkpoint(folder)["state_dict"].values() if weight.ndim == 4]
    return any(weight.is_contiguous(memory_format=torch.channels_last) for weight in filters if min(weight.shape) > 1)


def _types(folder: Path) -> set[torch.dtype]:
    checkpoint = _checkpoint(folder)
    return {value.dtype for value in checkpoint.get("current_model_state", checkpoint["state_dict"]).values()}


def test_every_overlay_has_an_effect_that_is_checked():
    assert {path.stem for path in OVERLAYS} == EFFECTS.keys() | BY_THEMSELVES


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment(run, short, tmp_path, config):
    experiment = settings_of(config)["experiment"]
    assert experiment == config.stem
    done = run("fit", "--config", config, *short(config))
    assert done.code == 0, done.err
    folder = tmp_path / f"lightning_logs/{experiment}/version_0"
    assert (folder / "checkpoints/last.ckpt").is_file()
    if monitor := _config(folder)["checkpoint"]["init_args"]["monitor"]:
        assert monitor.replace("val/", "test/") in done.out


@pytest.mark.parametrize("experiment", THERE)
def test_check_finds_nothing_wrong(run, short, tmp_path, experiment):
    config = CONFIGS / f"{experiment}.yaml"
    done = run("fit", "--config", config, *short(config), *SMALL[experiment], "--trainer.precision=32-true", "--check")
    assert done.code == 0, done.err
    assert "1 epochs of" in done.out
    assert "warning" not in done.out
    assert ("a guess" if experiment == "forecast" else f"(a guess: {math.log(GUESSES[experiment]):.4g})") in done.out
    assert {path.name for path in tmp_path.iterdir()} <= {"data"}


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    register_classes()
    return verb_parser("fit")


@pytest.mark.parametrize(
    ("config", "overlay"),
    [
        # The others have the same kinds of models and data.
        pytest.param(one, over, marks=[] if one.stem in THERE else pytest.mark.matrix)
        for one in EXPERIMENTS
        for over in OVERLAYS
        if over.stem not in UNSET.get(one.stem, ())
    ],
    ids=lambda path: path.stem,
)
def test_overlay_fits_experiment(parser, config, overlay):
    """All that an overlay says is in the config that would be run, and it takes no callback away."""
    Trust().enforce()
    if overlay.stem in OF_CLASSIFIERS and not _classifies(config):
        with pytest.raises(UserError, match=r"^model: Option '\w+' is not accepted"):
            parser.parse_args(["--config", str(config), "--config", str(overlay)])
        return
    merged = parser.parse_args(["--config", str(config), "--config", str(overlay)]).as_dict()
    before, over = settings_of(config), settings_of(overlay)
    assert _callbacks(before) <= _callbacks(merged)
    assert merged["experiment"] == over.get("experiment", before["experiment"])
    for section in ("compile", "ema"):
        assert section not in over or over[section].items() <= merged[section]["init_args"].items()
    for name, value in over.get("trainer", {}).items():
        if name == "callbacks+":
            assert _callbacks({"trainer": {"callbacks": value}}) <= _callbacks(merged)
        else:
            assert merged["trainer"][name] == value or isinstance(value, dict)


def _classifies(config: Path) -> bool:
    return issubclass(find_class(settings_of(config)["model"]["class_path"], LightningModule), Classifier)


def _callbacks(config: dict) -> set[str]:
    return {callback["class_path"].rsplit(".")[-1] for callback in config["trainer"]["callbacks"]}


@pytest.fixture
def fit(run, short, tmp_path) -> Callable[..., tuple[Path, Outcome]]:
    """Fits an experiment with overlays for a few steps; returns its folder and what it printed."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.use_deterministic_algorithms(False)

    def fit_small(experiment: str, overlays: Iterable[str], *flags: str) -> tuple[Path, Outcome]:
        base, over = CONFIGS / f"{experiment}.yaml", [CONFIGS / f"with/{name}.yaml" for name in overlays]
        small = [*short(base), *SMALL[experiment], "--trainer.limit_train_batches=8", "--test_after_fit=false", *flags]
        done = run("fit", "--config", base, *small, *(part for path in over for part in ("--config", path)))
        assert done.code == 0, done.err
        name = "smoke" if "smoke" in overlays else experiment
        folder = tmp_path / f"lightning_logs/{name}/version_0"
        assert _callbacks(settings_of(base)) <= _callbacks(_config(folder))
        return folder, done

    yield fit_small
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.filterwarnings("ignore:.*AMP with fp16 is not supported on CPU")  # it says what it does instead
@pytest.mark.parametrize(("number", "overlay"), list(enumerate(sorted(EFFECTS.keys() - COMPILED))), ids=str)
def test_overlay(fit, number, overlay):
    experiment = "cifar" if overlay in OF_CLASSIFIERS else THERE[number % len(THERE)]
    # torchao compiles its step, seconds for each shape; tests/litlab/optim has what it does.
    with torch.compiler.set_stance("force_eager" if overlay == "adamw8bit" else "default"):
        folder, done = fit(experiment, [overlay], *filter(None, [GIVEN_UP.get(overlay, {}).get(experiment)]))
    assert EFFECTS[overlay](folder, done), _config(folder)


@pytest.mark.parametrize(
    ("experiment", "overlay", "keys"),
    [
        ("linear", "muon", ["model.optimizer"]),
        ("cifar", "fused", ["model.optimizer", "fused"]),
        ("linear", "warm_restarts", ["model.schedule"]),
        ("text", "agc", ["agc", "trainer.gradient_clip_val"]),
        ("text", "swa", ["swa", "ema"]),
        ("text", "mixup", ["model.mixup", "model.image_shape"]),
        ("forecast", "label_smoothing", ["model.label_smoothing", "LSTMForecaster"]),
        ("forecast", "tta", ["model.flip_tta", "LSTMForecaster"]),
        ("cifar_vgg", "activation_checkpointing", ["activation_checkpointing.blocks", "model.network"]),
        ("linear", "adamw8bit", ["model.optimizer"]),
        ("text", "optimizer_in_backward", ["trainer.callbacks", "trainer.gradient_clip_val"]),
    ],
)
def test_an_overlay_that_does_not_fit_says_so_in_one_line(run, short, experiment, overlay, keys):
    config = CONFIGS / f"{experiment}.yaml"
    done = run("fit", "--config", config, *short(config), "--config", CONFIGS / f"with/{overlay}.yaml")
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert (done.code, len(errors)) == (2, 1), done.err
    assert all(key in errors[0] for key in keys), errors


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")  # torch.compile hides it, pytest shows it
@pytest.mark.parametrize("experiment", THERE)
def test_compile_overlay(fit, experiment):
    """What a backend does with the graphs is torch's; tests/litlab/callbacks trains with inductor."""
    folder, done = fit(experiment, ["compile", "graph_breaks"], "--compile.backend=eager")
    assert EFFECTS["compile"](folder, done), _config(folder)
    assert EFFECTS["graph_breaks"](folder, done), _config(folder)


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor")
@pytest.mark.parametrize(("experiment", "overlay"), [("cifar", "compile_blocks"), ("text", "compile_dynamic")])
def test_overlay_for_some_networks(fit, experiment, overlay):
    """The texts' lengths differ, and no length is compiled by itself."""
    folder, done = fit(experiment, [overlay], "--compile.backend=eager", "--data.batch_size=20")
    assert EFFECTS[overlay](folder, done), _config(folder)
    assert "compiled again" not in done.err or experiment == "cifar"  # whose last batch is smaller


def test_blocks_that_a_network_does_not_have_are_one_line(run, short):
    config, overlay = CONFIGS / "forecast.yaml", CONFIGS / "with/compile_blocks.yaml"
    done = run("fit", "--config", config, *short(config), "--config", overlay)
    assert done.code == 2
    assert "error: compile.children: no module fits '*.blocks.*' in model LSTMForecaster" in done.err


def test_max_autotune_starts_warm_the_second_time(run, tmp_path, monkeypatch):
    """With inductor, as the overlay is; the compiled code is kept for the experiment."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    config, overlay = CONFIGS / "linear.yaml", CONFIGS / "with/compile_max_autotune.yaml"
    outcomes = []
    for _ in range(2):
        torch._dynamo.reset()
        done = run(
            "fit", "--config", config, "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--config", overlay
        )
        if "no working compiler" in done.err:
            pytest.skip(done.err)
        assert done.code == 0, done.err
        outcomes.append(next(line for line in done.out.splitlines() if "│ compile" in line))
    assert "s cold" in outcomes[0]
    assert "s warm" in outcomes[1]
    assert any((tmp_path / "lightning_logs/compile_cache/linear").iterdir())
    cold, warm = (tmp_path / f"lightning_logs/linear/version_{n}/checkpoints/last.ckpt" for n in (0, 1))
    states = [torch.load(path, weights_only=True)["state_dict"] for path in (cold, warm)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_reduce_overhead_says_in_one_line_that_it_needs_a_gpu(run, short):
    config, overlay = CONFIGS / "cifar.yaml", CONFIGS / "with/compile_reduce_overhead.yaml"
    done = run("fit", "--config", config, *short(config), "--config", overlay)
    assert done.code == 2
    assert "error: compile.mode: reduce-overhead needs a CUDA GPU, and trainer.accelerator runs on cpu" in done.err


@pytest.mark.parametrize("experiment", THERE)
def test_overlays_stack(fit, experiment):
    folder, done = fit(experiment, STACK)
    assert "Using bfloat16 Automatic Mixed Precision" in done.err
    assert torch.are_deterministic_algorithms_enabled()
    trainer = _config(folder)["trainer"]
    assert (trainer["accumulate_grad_batches"], trainer["gradient_clip_val"]) == (4, 1.0)
    assert _checkpoint(folder)["global_step"] == 1
    assert "current_model_state" in _checkpoint(folder)  # EMA


def test_ddp_overlay_trains_the_same_network_on_both_processes(short, tmp_path):
    done = shell(
        "fit", "--config", CONFIGS / "cifar.yaml", *short(CONFIGS / "cifar.yaml"), "--model.width=16",
        "--config", CONFIGS / "with/ddp.yaml", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "lightning_logs/cifar").iterdir()] == ["version_0"]
    assert done.out.count("epoch 1/1") == 1
    folder = tmp_path / "lightning_logs/cifar/version_0"
    assert _checkpoint(folder)["global_step"] == 160 // (2 * 40)
    assert _checkpoint(folder)["state_dict"]["network.whitened"]


def test_profile_overlay_profiles_each_process(short, tmp_path):
    config, overlays = CONFIGS / "cifar.yaml", [CONFIGS / f"with/{name}.yaml" for name in ("ddp", "profile")]
    small = [*short(config), *SMALL["cifar"], *(part for path in overlays for part in ("--config", path))]
    done = shell("fit", "--config", config, *small, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.count("Where the time of a training step goes") == 1
    for rank in (0, 1):
        found = json.loads((tmp_path / f"lightning_logs/cifar/version_0/fit-profile-{rank}.json").read_text())
        assert found["steps"] == [5, 5, 5]
        assert math.isclose(sum(found["shares"].values()), 1)
        assert "c10d::allreduce_" in {operation["name"] for operation in found["operations"]}
        assert (tmp_path / f"lightning_logs/cifar/version_0/fit-profile-{rank}.trace.json").is_file()


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
@pytest.mark.parametrize("overlay", ["fsdp", "offload"])
def test_fsdp_overlay_says_in_one_line_that_it_needs_a_gpu(run, short, overlay):
    done = run(
        "fit",
        "--config",
        CONFIGS / "cifar.yaml",
        *short(CONFIGS / "cifar.yaml"),
        "--config",
        CONFIGS / f"with/{overlay}.yaml",
    )
    assert done.code == 2
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "fsdp" in errors[0].lower()
    assert "GPU" in errors[0]


@pytest.mark.parametrize("config", [*EXPERIMENTS, *OVERLAYS], ids=lambda path: path.stem)
def test_first_lines_say_what_it_is_and_how_it_is_run(config):
    lines = config.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert any(f"--config {config.relative_to(ROOT)}" in line for line in lines[:3] if line.startswith("#"))
    if config in OVERLAYS:
        assert len(lines) <= 13


def test_a_new_data_module_needs_no_edit_of_the_tests(run, short, tmp_path):
    """Without a file in tests/project/short it runs as it is, for two batches of everything."""
    config = ROOT / "tests/litlab/tasks/plain/plain.yaml"
    done = run("fit", "--config", config, *short(config))
    assert done.code == 0, done.err
    assert _config(tmp_path / "lightning_logs/plain/version_0")["trainer"]["limit_val_batches"] == 2
