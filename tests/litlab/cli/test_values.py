"""Values that torch and Lightning accept and that make no sense: refused before anything is built."""

from pathlib import Path

import pytest
from jsonargparse import Namespace

import litlab.callbacks
import litlab.checkpointing.callback  # noqa: F401 - the parser imports what a config names
from litlab.cli.bounds import check_values
from litlab.cli.environment import check_folder
from litlab.cli.resources import check_processes
from litlab.errors import UserError

CALLBACKS = "lightning.pytorch.callbacks"
SCHEDULERS = "torch.optim.lr_scheduler"


def settings(class_path: str, **arguments: object) -> Namespace:
    return Namespace(class_path=class_path, init_args=Namespace(**arguments))


def in_config(key: str, value: object) -> Namespace:
    """A config in which one setting is set."""
    config = Namespace(seed_everything=0, trainer=Namespace())
    config[key] = value
    return config


def refusal(config: Namespace, verb: str = "fit") -> str:
    with pytest.raises(UserError) as refused:
        check_values(verb, config)
    return str(refused.value)


TRAINER = [
    ("gradient_clip_val", -1), ("gradient_clip_val", float("nan")), ("accumulate_grad_batches", -1),
    ("accumulate_grad_batches", 0), ("limit_train_batches", 0), ("limit_train_batches", 0.0), ("max_steps", 0),
    ("max_steps", -2), ("max_epochs", 0), ("min_epochs", -1), ("min_steps", -1), ("check_val_every_n_epoch", 0),
    ("val_check_interval", 0), ("val_check_interval", -0.5), ("log_every_n_steps", -1), ("num_sanity_val_steps", -5),
    ("overfit_batches", -1), ("fast_dev_run", -1), ("reload_dataloaders_every_n_epochs", -1), ("num_nodes", 0),
    ("limit_val_batches", -1), ("limit_test_batches", -0.1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), TRAINER)
def test_the_trainers_numbers_have_bounds(name, value):
    assert refusal(in_config(f"trainer.{name}", value)).startswith(f"trainer.{name}: {value} is not valid; it must be ")


@pytest.mark.parametrize("what", ["epochs", "steps"])
def test_the_least_is_not_above_the_most(what):
    config = in_config(f"trainer.min_{what}", 5)
    check_values("fit", config)
    config[f"trainer.max_{what}"] = 2
    assert refusal(config) == f"trainer.min_{what}: 5 is not valid; it must be at most trainer.max_{what}, which is 2"


def test_what_switches_off_or_has_no_limit_passes():
    usual = {
        "max_epochs": -1, "max_steps": -1, "num_sanity_val_steps": -1, "limit_val_batches": 0, "gradient_clip_val": 0,
        "min_epochs": None, "val_check_interval": "00:10:00", "check_val_every_n_epoch": None, "fast_dev_run": False,
        "limit_train_batches": 0.5, "log_every_n_steps": 0, "accumulate_grad_batches": 1,
    }  # fmt: skip
    check_values("fit", Namespace(seed_everything=0, trainer=Namespace(**usual)))


# (key of the entry in the config, class, argument, value)
CLASSES = [
    ("early_stopping", f"{CALLBACKS}.EarlyStopping", "patience", -1),
    ("early_stopping", f"{CALLBACKS}.EarlyStopping", "min_delta", -0.1),
    ("checkpoint", "litlab.checkpointing.RunCheckpoint", "save_top_k", -2),
    ("ema", "litlab.callbacks.EMA", "decay", -1.0),
    ("trainer.callbacks", f"{CALLBACKS}.StochasticWeightAveraging", "swa_lrs", [0.1, -1.0]),
    ("trainer.callbacks", f"{CALLBACKS}.LearningRateFinder", "num_training_steps", 0),
    ("model.init_args.optimizer", "torch.optim.SGD", "lr", 0.0),
    ("model.init_args.optimizer", "torch.optim.SGD", "momentum", -0.9),
    ("model.init_args.optimizer", "torch.optim.SGD", "dampening", -1.0),
    ("model.init_args.optimizer", "torch.optim.Adam", "betas", (0.9, 1.0)),
    ("model.init_args.optimizer", "torch.optim.ASGD", "t0", -1.0),
    ("model.init_args.optimizer", "torch.optim.LBFGS", "max_iter", 0),
    ("model.init_args.optimizer", "torch.optim.AdamW", "weight_decay", -0.1),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.StepLR", "step_size", -1),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.StepLR", "gamma", -1.0),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.MultiStepLR", "milestones", [2, -1]),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.CosineAnnealingLR", "T_max", 0),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.CosineAnnealingLR", "eta_min", -1.0),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.ReduceLROnPlateau", "factor", -0.1),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.ReduceLROnPlateau", "patience", -1),
    ("model.init_args.schedule.scheduler", f"{SCHEDULERS}.OneCycleLR", "pct_start", 1.5),
]


@pytest.mark.parametrize(("place", "class_path", "name", "value"), CLASSES)
def test_the_arguments_of_classes_have_bounds(place, class_path, name, value):
    entry = settings(class_path, **{name: value})
    config = in_config(place, [entry] if place == "trainer.callbacks" else entry)
    if place.startswith("model"):
        config["model.class_path"] = "auks.images.SmallCNN"
    key = place.replace(".init_args", "") + ("[0]" if place == "trainer.callbacks" else "")
    assert refusal(config).startswith(f"{key}.{name}: {value} is not valid; it must be ")


def test_a_cyclic_schedule_has_its_base_below_its_top():
    def cyclic(base: float, top: float) -> Namespace:
        schedule = settings(f"{SCHEDULERS}.CyclicLR", base_lr=base, max_lr=top)
        config = in_config("model.init_args.schedule.scheduler", schedule)
        config["model.class_path"] = "auks.images.SmallCNN"
        return config

    check_values("fit", cyclic(0.1, 0.2))
    assert refusal(cyclic(0.3, 0.2)) == (
        "model.schedule.scheduler.base_lr: 0.3 is not valid; it must be at most model.schedule.scheduler.max_lr, "
        "which is 0.2"
    )


def test_the_same_name_in_a_model_or_data_is_its_own_matter():
    config = in_config("model", settings("auks.images.SmallCNN", gamma=-1.0, patience=-1))
    config["data"] = settings("litlab.data.ImageData", momentum=-1)
    check_values("fit", config)


def test_seeds_are_what_numpy_takes():
    for seed in (-1, 2**40):
        assert refusal(in_config("seed_everything", seed)).startswith(f"seed_everything: {seed} is not valid; ")
        data = settings("litlab.data.ImageData", seed=seed)
        assert refusal(in_config("data", data)).startswith(f"data.seed: {seed} is not valid; ")


def test_a_verb_that_would_evaluate_nothing_is_refused():
    config = in_config("trainer.limit_test_batches", 0)
    assert refusal(config, "test").startswith("trainer.limit_test_batches: 0 is not valid; ")
    check_values("validate", config)
    check_values("test", in_config("trainer.max_steps", 0))  # of a run of old: nothing to do with a test


def test_empty_names_are_refused_but_not_where_they_are_the_default():
    for key in ("init_from", "experiment", "trainer.default_root_dir"):
        assert refusal(in_config(key, "")) == f"{key}: it is empty; give it a value, or leave it out"
    for name in ("dirpath", "filename"):
        checkpoint = settings("litlab.checkpointing.RunCheckpoint", **{name: ""})
        assert refusal(in_config("checkpoint", checkpoint)).startswith(f"checkpoint.{name}: it is empty")
    assert refusal(in_config("data", settings("litlab.data.ImageData", path=""))).startswith("data.path: it is empty")
    finder = settings(f"{CALLBACKS}.LearningRateFinder", attr_name="")
    logger = settings("lightning.pytorch.loggers.TensorBoardLogger", save_dir="x", name="")
    check_values("fit", Namespace(trainer=Namespace(callbacks=[finder], logger=logger)))


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("abc", "trainer.devices: 'abc' is not valid; give a number"),
        ("-2", "trainer.devices: -2 is not valid; it must be at least 1"),
        (0, "trainer.devices: 0 is not valid; it must be at least 1"),
        ("99999", "trainer.devices: 99999 is one process each"),
        (2**40, "is one process each"),
        ([0, 0], "has a device twice"),
        ("0,x", "give a number, a list of device numbers"),
        ([], "give a number, a list of device numbers"),
    ],
)
def test_devices_that_are_none_or_too_many(devices, says):
    with pytest.raises(UserError, match=r"trainer\.devices") as refused:
        check_processes(Namespace(devices=devices, num_nodes=1, strategy="auto", plugins=None))
    assert says in str(refused.value)


def test_nodes_need_a_launcher_and_strategies_must_start_commands(monkeypatch):
    for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "KUBERNETES_PORT"):
        monkeypatch.delenv(name, raising=False)
    trainer = Namespace(devices="auto", num_nodes=2, strategy="ddp", plugins=None)
    with pytest.raises(UserError, match="num_nodes: 2, but nothing says which of them this is"):
        check_processes(trainer)
    monkeypatch.setenv("NODE_RANK", "1")
    check_processes(trainer)
    written = Namespace(class_path="lightning.pytorch.strategies.DDPStrategy", init_args=Namespace(start_method="fork"))
    for strategy in ("ddp_spawn", "ddp_fork", "ddp_notebook", written):
        with pytest.raises(UserError, match=r"trainer\.strategy: \w+ would copy .* use ddp"):
            check_processes(Namespace(devices=2, num_nodes=1, strategy=strategy, plugins=None))


def test_folders_that_can_not_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        tmp_path / "file/below": f"KEY: {tmp_path}/file is not a folder",
        tmp_path / "loop/below": "KEY: ",
        Path("x" * 300): "KEY: a name of 300 characters is too long",
        Path("x\0y"): "KEY: 'x\\x00y' holds a null character",
    }
    for folder, says in cases.items():
        with pytest.raises(UserError) as refused:
            check_folder("KEY", folder)
        assert str(refused.value).startswith(says)
    check_folder("KEY", tmp_path / "new/run")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(UserError, match="is read-only"):
        check_folder("KEY", tmp_path / "new/run")
