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
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info

from project.callbacks import EMA, VRAM, Compile, ProgressBar, RunSummary
from project.checkpoints import load_checkpoint
from project.errors import UserError, one_line, user_message
from project.parser import ProjectParser
from project.runs.changes import (
    Changes,
    Finished,
    changed_settings,
    check_resumption,
    check_weights,
    describe,
    is_complete,
    other_results,
)
from project.runs.compare import read_config
from project.runs.config import RunConfig
from project.runs.continuation import checkpoint_of, continuation
from project.runs.folder import RunFolder
from project.runs.guard import NonFiniteGuard
from project.runs.initialise import initialise
from project.runs.optimizer_changes import OptimizerChanges
from project.runs.out_of_memory import out_of_memory_advice
from project.runs.record import RunRecord
from project.runs.signals import StopSignals
from project.trainer import drop_empty_hooks, loggers, plugins

SECTIONS = ("checkpoint", "early_stopping", "ema", "guard", "compile", "vram")


class ProjectCLI(LightningCLI):
    """``fit``, ``validate``, ``test`` and ``predict`` of any model and data, described by YAML.

    Beside ``model``, ``data`` and ``trainer``, every config has the sections ``checkpoint``, ``early_stopping``,
    ``ema``, ``guard``, ``compile`` and ``vram``, each off when null. What a model must know of the data (number of
    classes, image shape) is asked of the data: a model setting that is null and has the name of a property of the
    DataModule gets its value.
    """

    def __init__(self) -> None:
        self.continuation = continuation(sys.argv[1:])
        sys.argv[1:] = self.continuation.command  # what Lightning starts the other processes of a run with
        self.checkpoint: dict[str, Any] | None = None  # the one that the model's settings are completed from
        self.new_optimizer = False  # whether its settings are not those of the checkpoint
        self.changes: Changes = {}  # settings that are not those of the run that the command goes on from
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
        add("--init_from", type=str | None, default=None, help="Run or checkpoint whose weights fit begins with.")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses the command line, with the config of the run in front that it goes on from."""
        parser.arguments = self.continuation.arguments  # pyright: ignore[reportAttributeAccessIssue]
        self.config = parser.parse_args(self.continuation.arguments)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        add = parser.add_argument
        if subcommand == "fit":
            add("--resume", type=str | None, default=None, help="Run to go on with, in its folder: last, or its name.")
            add("--check", type=bool, default=False, help="Try a few steps, estimate time and memory; write nothing.")
        else:
            add("--run", type=str | None, default=None, help="Run, or checkpoint, to use; no config is needed then.")
        if subcommand == "predict":
            add("--input", type=str | None, default=None, help="File or folder to predict.")
            add(
                "--output",
                type=str | None,
                default=None,
                help="CSV file to write. Default: predictions.csv of the run.",
            )
        return parser

    def _parse_ckpt_path(self) -> None:
        """Completes the model's settings from the checkpoint; what the YAML or a flag sets wins and is listed."""
        verb, plan = self.config.subcommand, self.continuation
        if (self.config[verb].get("resume" if verb == "fit" else "run") is not None) and plan.checkpoint is None:
            raise UserError(f"{'resume' if verb == 'fit' else 'run'}: give it as a flag, not in a config.")
        path = plan.checkpoint or self.config[verb].get("ckpt_path")
        if path is None and verb != "fit":
            raise UserError(f"{verb}: give --run RUN, or --ckpt_path FILE, for the weights to use.")
        if path is None:
            return
        self.checkpoint = load_checkpoint(str(path))
        if plan.run is not None and plan.saved:
            self._compare_with(plan.run)
        saved = self.checkpoint.get("hyper_parameters") or {}
        saved = {name: value for name, value in saved.items() if name != "_instantiator"}
        class_path = saved.pop("_class_path", None)
        model = self.config[verb].model
        if class_path is None:
            return  # written by plain Python code: the config alone describes the model
        if class_path != model.class_path:
            raise UserError(
                f"--ckpt_path {path} holds a {class_path}, the config's model.class_path is {model.class_path}."
            )
        here = self._plain_config()["model"]["init_args"]
        for name in (explicit := self._explicit_model_settings(here)):
            if name in saved and saved[name] != here[name] and not plan.saved:
                rank_zero_info(f"model.{name}: {here[name]} (the checkpoint has {saved[name]})")
        self.new_optimizer = "optimizer" in saved and saved["optimizer"] != here.get("optimizer")
        init_args = {**saved, **{name: here[name] for name in explicit}}
        settings = {verb: {"model": {"class_path": class_path, "init_args": init_args}}}
        self.config = self.parser.parse_object(settings, self.config)
        if plan.run is not None and not plan.saved:  # its config is the user's, only now completed
            self._compare_with(plan.run)

    def _compare_with(self, run: RunFolder) -> None:
        """Finds the settings that are not the run's, lists them, and refuses those that can't be trained on with."""
        assert self.checkpoint is not None
        config = self._plain_config()
        self.changes = changed_settings(self.continuation.saved or read_config(run.config), config)
        if self.continuation.resumes:
            check_resumption(run.name, self.checkpoint, self.changes, config)
            if run.state().get("status") == "finished" and (not self.changes or is_complete(self.checkpoint, config)):
                raise Finished(run)
        if self.changes and self.continuation.saved:
            rank_zero_info(f"Not as in {run.name}: {describe(self.changes)}.")

    def _plain_config(self) -> dict[str, Any]:
        return json.loads(self.parser.dump(self.config, format="json", skip_none=False))[self.config.subcommand]

    def _explicit_model_settings(self, here: dict[str, Any]) -> list[str]:
        """Names of the model's settings that the user has set, beside what a run's config or the data says."""
        verb = self.config.subcommand
        if plan := self.continuation.saved:
            then = plan["model"].get("init_args") or {}
            return [name for name in here if name not in then or then[name] != here[name]]
        explicit = self.parser.parse_args(self.continuation.arguments, defaults=False)[verb].model
        # A null that the data would fill says nothing against the checkpoint.
        names = explicit.get("init_args", Namespace()).as_dict()
        return [name for name in names if here[name] is not None or not _tells(self.config[verb].data, name)]

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
        if self.checkpoint is not None:
            check_weights(self.model, self.checkpoint, self.changes)
        elif verb == "fit" and (wanted := self.config[verb].init_from):
            path = checkpoint_of(wanted)
            self.config[verb].init_from = str(path)
            initialise(self.model, path)
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Builds the Trainer with the sections' callbacks and the run folder's logger."""
        config = self._get(self.config_init, "trainer")
        if self.subcommand == "predict":
            config["strategy"], config["devices"], config["num_nodes"] = "auto", 1, 1  # one process writes the file
        sections = (self._get(self.config_init, section) for section in SECTIONS)
        callbacks = [c for c in sections if c is not None and not (isinstance(c, Compile) and c.mode is None)]
        logger = self._loggers(config)
        if logger:
            callbacks.append(LearningRateMonitor())
        if config["enable_progress_bar"] is not False and not config["barebones"]:
            callbacks.append(ProgressBar())
        further = config["callbacks"] or []
        callbacks += [RunRecord(), StopSignals(), RunSummary(), *(further if isinstance(further, list) else [further])]
        if self.new_optimizer:
            callbacks.append(OptimizerChanges())
        if config["enable_checkpointing"] is None:
            kwargs["enable_checkpointing"] = any(isinstance(c, Checkpoint) for c in callbacks)
        kept = self._get(self.config_init, "checkpoint")
        if kept is not None:
            if kept.save_last == "link":
                raise UserError("checkpoint.save_last: a link breaks when its checkpoint is deleted; set it to true.")
            if self.continuation.resumes:
                kept._enable_version_counter = False  # what is saved again replaces the file of that name
        try:
            trainer = super().instantiate_trainer(**kwargs, logger=logger, callbacks=callbacks, plugins=plugins(config))
        except (MisconfigurationException, ValueError) as error:
            raise UserError(f"trainer: {one_line(error)}") from error
        drop_empty_hooks(trainer)
        if self.checkpoint is not None and self.subcommand != "fit":  # where results belong in the curves of the run
            trainer.fit_loop.epoch_loop._batches_that_stepped = self.checkpoint["global_step"]
        return trainer

    def _loggers(self, config: Any) -> list[Logger] | bool:
        """The loggers: those of a new run, of the run that is gone on with, or none where nothing is to be kept."""
        plan = self.continuation
        if config["barebones"] or config["logger"] is False or self.subcommand == "predict":
            return False  # predictions are a file
        if self.subcommand == "fit":
            step = self.checkpoint["global_step"] if plan.resumes and self.checkpoint else None
            return loggers(config, self._get(self.config, "experiment"), plan.run, step)
        if plan.run is None:
            rank_zero_info("The checkpoint lies in no run folder: the results are printed, not kept.")
            return False
        if others := other_results(self.changes):
            rank_zero_info(f"Not as in {plan.run.name} ({others}): the results are printed, not kept.")
            return False
        return loggers(config, "", plan.run, None)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        quiet = {"verbose": False} if subcommand in ("validate", "test") else {}
        kwargs = {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True, **quiet}
        return {**kwargs, "ckpt_path": str(path)} if (path := self.continuation.checkpoint) else kwargs

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
        if output is None:
            output = str((run.path if (run := self.continuation.run) else Path()) / "predictions.csv")
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
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists")  # a resumed run's does
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)  # Lightning with torch's pytree


def run() -> int:
    """Runs ``sys.argv``.

    Returns:
        0, also for a run that is finished already; 2 after one line that says what the user can put right; 130 after
        Ctrl-C. (A signal that stops a training ends the process with 143 or 130, after a checkpoint.)
    """
    quiet()
    register_classes()
    try:
        ProjectCLI()
    except KeyboardInterrupt:
        return 130
    except Finished as finished:
        rank_zero_info(str(finished))
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2
    return 0
