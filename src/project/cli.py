"""``ProjectCLI``: Lightning's command line with the sections, data facts and errors of this project."""

import importlib
import json
import logging
import pkgutil
import sys
import warnings
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info

from project.callbacks import EMA, VRAM, Compile, ProgressBar, RunSummary
from project.checkpoints import load_checkpoint
from project.errors import UserError, one_line, user_message
from project.parser import ProjectParser
from project.runs.checkpoint_files import AtomicCheckpointIO
from project.runs.guard import NonFiniteGuard
from project.runs.out_of_memory import out_of_memory_advice
from project.runs.record import RunRecord
from project.runs.signals import StopSignals

SECTIONS = ("checkpoint", "early_stopping", "ema", "guard", "compile", "vram")
# Lightning calls these of every callback at every step, about 5 µs each, even where a callback leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


class RunConfig(SaveConfigCallback):
    """Writes the resolved config into the run folder. A run without a logger has no folder and leaves nothing."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Saves ``config.yaml`` once."""
        if trainer.loggers:
            super().setup(trainer, pl_module, stage)


class ProjectCLI(LightningCLI):
    """``fit``, ``validate``, ``test`` and ``predict`` of any model and data, described by YAML.

    Beside ``model``, ``data`` and ``trainer``, every config has the sections ``checkpoint``, ``early_stopping``,
    ``ema``, ``guard``, ``compile`` and ``vram``, each off when null. What a model must know of the data (number of
    classes, image shape) is asked of the data: a model setting that is null and has the name of a property of the
    DataModule gets its value.
    """

    def __init__(self) -> None:
        super().__init__(
            model_class=LightningModule,
            datamodule_class=LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=ProjectParser,
            parser_kwargs={verb: {"prog": f"python -m project {verb}"} for verb in self.subcommands()},
            save_config_callback=RunConfig,
            save_config_kwargs={"overwrite": True},
            trainer_defaults={"use_distributed_sampler": False},  # the DataModules shard, without padding
            seed_everything_default=0,
            auto_configure_optimizers=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The verbs, and what is no setting of theirs: checkpoints are weights only, results are in the summary."""
        return {verb: skipped | {"weights_only", "verbose"} for verb, skipped in LightningCLI.subcommands().items()}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds the sections that every experiment has."""
        add, own = parser.add_argument, "project.callbacks."
        add("--experiment", default="default", help="Name of the experiment; runs go to lightning_logs/NAME/version_N.")
        add(
            "--checkpoint",
            type=ModelCheckpoint | None,
            default={"class_path": "lightning.pytorch.callbacks.ModelCheckpoint"},
            help="Which checkpoints are kept. null: none.",
        )
        add("--early_stopping", type=EarlyStopping | None, default=None, help="When to stop early. null: never.")
        add("--ema", type=EMA | None, default=None, help="Average of the weights to validate and keep. null: none.")
        add(
            "--guard",
            type=NonFiniteGuard | None,
            default={"class_path": "project.runs.guard.NonFiniteGuard"},
            help="What happens when a loss or gradient is no number. null: nothing.",
        )
        add(
            "--compile",
            type=Compile | None,
            default={"class_path": own + "Compile"},
            help="torch.compile, in place. null, or mode: null: off.",
        )
        add(
            "--vram",
            type=VRAM | None,
            default={"class_path": own + "VRAM"},
            help="Memory and speed, measured per epoch. null: off.",
        )
        add("--test_after_fit", type=bool, default=True, help="Whether fit ends by testing the best checkpoint.")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand == "predict":
            parser.add_argument("--input", type=str | None, default=None, help="File or folder to predict.")
            parser.add_argument("--output", default="predictions.csv", help="CSV file that the predictions go to.")
        return parser

    def _parse_ckpt_path(self) -> None:
        """Completes the model's settings from ``--ckpt_path``; what the YAML or a flag sets wins and is listed."""
        verb = self.config.subcommand
        path = self.config[verb].get("ckpt_path")
        if path is None and verb != "fit":
            raise UserError(f"{verb}: --ckpt_path is not set: give the checkpoint whose weights to use.")
        if path is None:
            return
        saved = load_checkpoint(path).get("hyper_parameters") or {}
        saved = {name: value for name, value in saved.items() if name != "_instantiator"}
        class_path = saved.pop("_class_path", None)
        model = self.config[verb].model
        if class_path is None:
            return  # written by plain Python code: the config alone describes the model
        if class_path != model.class_path:
            raise UserError(
                f"--ckpt_path {path} holds a {class_path}, the config's model.class_path is {model.class_path}."
            )
        explicit = self.parser.parse_args(defaults=False)[verb].model.get("init_args", Namespace()).as_dict()
        here = json.loads(self.parser.dump(self.config, format="json", skip_none=False))[verb]["model"]["init_args"]
        # A null that the data would fill says nothing against the checkpoint.
        explicit = [name for name in explicit if here[name] is not None or not _tells(self.config[verb].data, name)]
        for name in explicit:
            if name in saved and saved[name] != here[name]:
                rank_zero_info(f"model.{name}: {here[name]} (the checkpoint has {saved[name]})")
                if name == "optimizer" and verb == "fit":
                    rank_zero_info(
                        "The optimizer's state, its learning rates included, goes on as the checkpoint has it."
                    )
        init_args = {**saved, **{name: here[name] for name in explicit}}
        settings = {verb: {"model": {"class_path": class_path, "init_args": init_args}}}
        self.config = self.parser.parse_object(settings, self.config)

    def instantiate_classes(self) -> None:
        """Builds the data, completes the model's settings from it, then builds the rest."""
        verb = self.config.subcommand
        config = self.config.clone()
        settings = config[verb].data.get("init_args", Namespace())
        if "seed" in settings and settings.seed is None:
            settings.seed = int(config[verb].seed_everything)  # one seed for weights, order and augmentation
        config_of_data = config[verb].pop("data")
        data = Namespace({"subcommand": verb, verb: Namespace(data=config_of_data)})
        self.datamodule = self.parser.instantiate_classes(data)[verb].data
        for name, value in config[verb].model.get("init_args", Namespace()).items(branches=True):
            if value is None and _tells(config_of_data, name):
                for target in (config, self.config):  # self.config is what the run folder and the checkpoint keep
                    target[verb].model.init_args[name] = getattr(self.datamodule, name)
        del self.config_dump  # made for the data, before the model's settings were complete
        self.config_init = self.parser.instantiate_classes(config)
        self.model = self._get(self.config_init, "model")
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Builds the Trainer with the sections' callbacks and the run folder's logger."""
        config = self._get(self.config_init, "trainer")
        if self.subcommand == "predict":
            config["strategy"], config["devices"], config["num_nodes"] = "auto", 1, 1  # one process writes the file
        sections = (self._get(self.config_init, section) for section in SECTIONS)
        callbacks = [c for c in sections if c is not None and not (isinstance(c, Compile) and c.mode is None)]
        logger = config["logger"]
        if config["barebones"] or self.subcommand == "predict":
            logger = False  # predictions are a file, not a run
        elif logger is None or logger is True:
            root = Path(config["default_root_dir"] or ".") / "lightning_logs"
            name = self._get(self.config, "experiment")
            if not name or ".." in Path(name).parts or Path(name).is_absolute():
                raise UserError(f"experiment: '{name}' is no name of a folder in {root}.")
            logger = TensorBoardLogger(root, name=name, default_hp_metric=False)
        if logger:
            callbacks.append(LearningRateMonitor())
        if config["enable_progress_bar"] is not False and not config["barebones"]:
            callbacks.append(ProgressBar())
        further = config["callbacks"] or []
        callbacks += [RunRecord(), StopSignals(), RunSummary(), *(further if isinstance(further, list) else [further])]
        if config["enable_checkpointing"] is None:
            kwargs["enable_checkpointing"] = any(isinstance(c, Checkpoint) for c in callbacks)
        plugins = config["plugins"] or []
        plugins = list(plugins) if isinstance(plugins, list | tuple) else [plugins]
        strategy = config["strategy"]
        whole = isinstance(strategy, str) and (strategy == "auto" or strategy.startswith("ddp"))  # others write shards
        if whole and not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(AtomicCheckpointIO())
        try:
            trainer = super().instantiate_trainer(**kwargs, logger=logger, callbacks=callbacks, plugins=plugins)
        except (MisconfigurationException, ValueError) as error:
            raise UserError(f"trainer: {one_line(error)}") from error
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            for hook in STEP_HOOKS:
                if getattr(type(callback), hook) is getattr(Callback, hook):
                    setattr(callback, hook, None)  # Lightning skips what can't be called
        checkpoint = self._get(self.config, "checkpoint")
        if checkpoint is not None and checkpoint.init_args.get("save_last") == "link":
            raise UserError("checkpoint.save_last: a link breaks when its checkpoint is deleted; set it to true.")
        by_step = ("every_n_train_steps", "train_time_interval")
        if checkpoint is not None and not any(checkpoint.init_args.get(name) for name in by_step):
            self._get(self.config_init, "checkpoint").on_train_batch_end = None  # it saves after epochs only
        return trainer

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        quiet = {"verbose": False} if subcommand in ("validate", "test") else {}
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True, **quiet}

    def _run_subcommand(self, subcommand: str) -> None:
        try:
            super()._run_subcommand(subcommand)
        except (MemoryError, RuntimeError) as error:
            advice = out_of_memory_advice(error, self.trainer)
            if advice is None:
                raise
            raise UserError(advice) from error

    def after_fit(self) -> None:
        """Tests the best checkpoint, or the last weights where none was kept, and prints the summary."""
        wanted = self._get(self.config, "test_after_fit") and not self.trainer.interrupted
        if wanted and not getattr(self.datamodule, "has_test", True):
            rank_zero_info("There is no test split: not tested.")
        elif wanted:
            best = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
            self.trainer.test(self.model, self.datamodule, ckpt_path=best or None, weights_only=True, verbose=False)
        self._summary()

    def after_validate(self) -> None:
        """Prints the summary."""
        self._summary()

    def after_test(self) -> None:
        """Prints the summary."""
        self._summary()

    def predict(self, **kwargs: Any) -> None:
        """Reads ``--input``, predicts and writes ``--output``."""
        source, output = self._get(self.config, "input"), self._get(self.config, "output")
        if not hasattr(self.datamodule, "write_predictions"):
            raise UserError(
                f"predict: {type(self.datamodule).__name__} has no write_predictions: it can't predict files."
            )
        if not source:
            raise UserError("predict: --input is not set: give a file or a folder.")
        if not output or Path(output).is_dir():
            raise UserError(f"predict: --output '{output}' is no file name.")
        limit = self.trainer.limit_predict_batches  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(limit, int) or limit != 1.0:  # 1.0 is all of them, 1 is one batch
            raise UserError("predict: trainer.limit_predict_batches or fast_dev_run would leave files out: unset it.")
        self.datamodule.predict_input = source
        outputs = self.trainer.predict(**{**kwargs, "return_predictions": True})
        self.datamodule.write_predictions(outputs, output)
        rank_zero_info(f"Predictions: {output}")

    def _summary(self) -> None:
        for callback in self.trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, RunSummary):
                callback.print_summary(self.trainer)


def _tells(data: Namespace, name: str) -> bool:
    """Whether a DataModule, by its config, has a property of that name: a fact of the data that a model may need."""
    module, _, class_name = data.class_path.rpartition(".")
    return isinstance(getattr(getattr(importlib.import_module(module), class_name), name, None), property)


def register_classes() -> None:
    """Imports every module of models, data, callbacks and optim, so that YAML finds their classes by short name."""
    for room in ("models", "data", "callbacks", "networks", "optim"):
        package = importlib.import_module(f"project.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")


def quiet() -> None:
    """Silences what Lightning tells every user at every start, and warnings that don't hold for this project."""
    tips = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    tips.addFilter(lambda record: "litlogger" not in record.getMessage())
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches come from memory
    warnings.filterwarnings("ignore", message=".*not supported by the model summary")  # it counts, it need not weigh
    warnings.filterwarnings("ignore", message="The dirpath has changed")  # every run has a folder of its own
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)  # Lightning with torch's pytree


def run() -> int:
    """Runs ``sys.argv``.

    Returns:
        0; 2 after one line that says what the user can put right; 130 after Ctrl-C. (A signal that stops a training
        ends the process with 143 or 130, after a checkpoint.)
    """
    quiet()
    register_classes()
    try:
        ProjectCLI()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2
    return 0
