"""``ExperimentCLI``: Lightning's command line with litlab's sections, facts of the data and errors."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info

import litlab.parallel  # noqa: F401 - registers its strategies
from litlab.artifact import Artifact
from litlab.artifact.steps import restore, serving_data, use_artifact
from litlab.callbacks import RunSummary
from litlab.callbacks.compile_parts import optimizer_advice
from litlab.checkpointing.weights import check_weights, initialise
from litlab.cli.callback_list import callback_list
from litlab.cli.checkpoint_cli import CheckpointCLI
from litlab.cli.data_facts import fill_from_data
from litlab.cli.lightning_internals import log_at_step, release_averages
from litlab.cli.output import check_prediction
from litlab.cli.parser import ExperimentParser
from litlab.cli.precision import ExperimentTrainer, compare_precision
from litlab.cli.resources import WithinMemory
from litlab.cli.sections import add_flags, add_sections, section_callbacks
from litlab.cli.trainer import (
    SomethingTrained,
    check_profiler,
    check_writer,
    implied,
    keep_compiled,
    loggers,
    make_lighter,
    plugins,
    untestable,
)
from litlab.errors import UserError
from litlab.optim.recipe import plain_recipe
from litlab.planning.batch import without_download
from litlab.planning.plan import plan
from litlab.preflight.check import preflight
from litlab.preflight.out_of_memory import out_of_memory_advice
from litlab.runs.config import RunConfig, log_results
from litlab.runs.config_diff import other_results
from litlab.runs.resume_plan import take_flag
from litlab.runs.saved import checkpoint_of
from litlab.runs.trial_report import TrialReport
from litlab.util.class_blocks import imported
from litlab.util.refusals import named_classes, refusals
from litlab.util.variables import TRIAL


class ExperimentCLI(CheckpointCLI):
    """``fit``, ``validate``, ``test`` and ``predict`` of any model and data, described by YAML.

    Beside ``model``, ``data`` and ``trainer``, every config has the sections of `litlab.cli.sections`, each of which is
    a callback and off when null. What a model must know of the data (number of classes, image shape) comes from the
    data: a setting of the model, its network or one of its metrics that is null and has the name of a property of the
    DataModule gets its value.
    """

    def __init__(self) -> None:
        super().__init__(
            model_class=LightningModule,
            datamodule_class=LightningDataModule,
            trainer_class=ExperimentTrainer,
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=ExperimentParser,
            save_config_callback=RunConfig,
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            auto_configure_optimizers=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the verb that is run, and arguments of the Trainer's method that are not settings.

        Checkpoints are weights only, results are in the summary. Parsers of the other verbs would take a quarter of a
        second of each start.
        """
        verbs = LightningCLI.subcommands()
        wanted = [verb for verb in verbs if verb in sys.argv[1:2]]
        return {verb: verbs[verb] | {"weights_only", "verbose"} for verb in wanted or verbs}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the sections that every experiment has."""
        add_sections(parser)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        add_flags(parser, subcommand)
        return parser

    def before_instantiate_classes(self) -> None:
        """Check what ``predict`` is to read and write, unless a callback of Lightning does that."""
        super().before_instantiate_classes()
        if self.config.subcommand != "predict":
            return
        if hasattr(imported(self.config.predict.data.class_path), "write_predictions"):
            run = self.plan.run
            self.output = check_prediction(self._plain_config(), run.path if run else Path())

    def instantiate_classes(self) -> None:
        """Build the data, complete the model's settings from it, then build the rest."""
        verb = self.config.subcommand
        config = self.config.clone()
        check_profiler(config[verb].trainer.profiler)
        settings = config[verb].data.get("init_args", Namespace())
        if "seed" in settings and settings.seed is None:
            settings.seed = int(config[verb].seed_everything)  # one seed for weights, order and augmentation
        config_of_data = config[verb].pop("data")
        data = Namespace({"subcommand": verb, verb: Namespace(data=config_of_data)})
        with named_classes({"data": config_of_data.as_dict()}):
            self.datamodule = self.parser.instantiate_classes(data)[verb].data
        if config[verb].get("plan"):
            without_download(self.datamodule)
        for target in (config, self.config):  # self.config is what the run folder and the checkpoint keep
            fill_from_data(target[verb].model, config_of_data, self.datamodule)
        del self.config_dump  # made for the data, before the model's settings were complete
        if config[verb].get("plan"):
            for name, none in (("logger", False), ("plugins", None), ("profiler", None), ("strategy", "auto")):
                config[verb].trainer[name] = none  # they are not looked at, and may start something
            self._build = partial(self._without_trainer, config)
            return
        with named_classes(config[verb].as_dict()), WithinMemory():
            self.config_init = self.parser.instantiate_classes(config)
        self.model = self.config_init[verb].model
        for name, value in vars(self.model).items():  # as in ExperimentModule: any module can be copied
            setattr(self.model, name, plain_recipe(value))
        if self.checkpoint is not None and self.plan.exported is None:
            check_weights(self.model, self.checkpoint)
        elif verb == "fit" and (wanted := self.config[verb].init_from):
            path = checkpoint_of(wanted)
            self.config[verb].init_from = str(path)
            initialise(self.model, path)
        self.trainer = self.instantiate_trainer()

    def _without_trainer(self, config: Namespace) -> tuple[LightningModule, list[Callback]]:
        """Build the model, and the callbacks that the config names."""
        with named_classes(config["fit"].as_dict()):
            built = self.parser.instantiate_classes(config.clone())["fit"]
        for name, value in vars(built.model).items():
            setattr(built.model, name, plain_recipe(value))
        named = built.trainer.callbacks or []
        return built.model, [*section_callbacks(built), *(named if isinstance(named, list) else [named])]

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the Trainer with the sections' callbacks and the run folder's logger."""
        built = self.config_init[self.config.subcommand]
        config = built.trainer
        if self.subcommand == "predict":
            config["strategy"], config["devices"], config["num_nodes"] = "auto", 1, 1  # one process writes the file
        logger = self._loggers(config)
        resumes = self.subcommand == "fit" and self.checkpoint is not None
        callbacks = callback_list(
            section_callbacks(built), config, self.model, bool(logger), resumes, self._test_follows
        )
        if TRIAL in os.environ:  # a trial of a sweep
            callbacks.append(TrialReport())
        keep_compiled(callbacks, config, self._setting("experiment"))
        if self.subcommand == "fit":
            callbacks.append(SomethingTrained())
        kwargs |= implied(config, self.datamodule, callbacks)
        with refusals("trainer"):
            trainer = super().instantiate_trainer(**kwargs, logger=logger, callbacks=callbacks, plugins=plugins(config))
        make_lighter(trainer)
        if self.plan.run is not None and self.plan.resumes and self._setting("trainer").precision == "auto":
            compare_precision(trainer, self.plan.run)
        if self.checkpoint is not None and self.subcommand != "fit":  # where results belong in the curves of the run
            log_at_step(trainer, self.checkpoint.get("global_step", 0))
        return trainer

    def _loggers(self, config: Any) -> list[Logger] | bool:
        """Return the loggers of a new run or of the one that is resumed; none where nothing is kept."""
        plan = self.plan
        if config["barebones"] or config["logger"] is False or self.subcommand == "predict":
            return False  # predictions are a file
        if self.subcommand == "fit":
            if self._setting("check"):
                return False
            return loggers(config, self._setting("experiment"), plan, self.checkpoint)
        if plan.run is None:
            why = "the checkpoint is not in a run's folder" if plan.exported is None else "this is an exported model"
            rank_zero_info(f"The results are printed, but not saved: {why}.")
            return False
        if others := other_results(self.changes):
            rank_zero_info(f"Settings differ from {plan.run.name} ({others}): the results are printed, but not saved.")
            return False
        return loggers(config, "", plan, self.checkpoint)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        quiet = {"verbose": False} if subcommand in ("validate", "test") else {}
        kwargs = {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True, **quiet}
        if self.plan.exported is not None:
            self._use_exported(self.plan.exported)
            return {**kwargs, "ckpt_path": None}
        return {**kwargs, "ckpt_path": str(path)} if (path := self.plan.checkpoint) else kwargs

    def _use_exported(self, folder: Path) -> None:
        """Let an exported model take the place of the network, which has no weights."""
        assert self.checkpoint is not None
        data = serving_data(self.datamodule, self.model, str(self.subcommand))
        restore(self.model, data, self.checkpoint)
        use_artifact(self.model, data, Artifact(folder, self._setting("threads")).run)

    def _run_subcommand(self, subcommand: str) -> None:
        if subcommand == "fit" and (wanted := self._setting("plan")):
            settings, words = self.config.fit, sys.argv[1:]
            for flag in ("--plan", "--plan_memory"):
                _, words = take_flag(flag, words)
            plan(wanted, settings.plan_memory, settings.trainer, self._build, ExperimentTrainer, self.datamodule, words)
            return
        if subcommand == "fit" and self._setting("check"):
            if self.checkpoint is not None:
                raise UserError("--check: it looks at a fit from its start; leave --resume and --ckpt_path out")
            preflight(self.trainer, self.model, self.datamodule)
            return
        if subcommand == "fit":
            self._own_checkpoints()
        try:
            super()._run_subcommand(subcommand)
        except (MemoryError, RuntimeError) as error:
            advice = out_of_memory_advice(error, self.trainer) or optimizer_advice(error, self.trainer)
            if advice is None:
                raise
            raise UserError(advice) from error

    def after_fit(self) -> None:
        """Test the best checkpoint, or the last weights where none was kept, and print the summary."""
        if self._test_follows():
            release_averages(self.trainer)
            best = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
            self.trainer.test(self.model, self.datamodule, ckpt_path=best or None, weights_only=True, verbose=False)
        elif self._test_wanted():
            rank_zero_info(f"{untestable(self.trainer, self.model, self.datamodule)}: not tested.")
        log_results(self.trainer)
        self.print_summary()

    def _test_wanted(self) -> bool:
        return self._setting("test_after_fit") and not self.trainer.interrupted

    def _test_follows(self) -> bool:
        """Return whether this fit ends with a test."""
        return self._test_wanted() and untestable(self.trainer, self.model, self.datamodule) is None

    def predict(self, **kwargs: Any) -> None:
        """Read ``--input``, predict and write ``--output``; or leave both to Lightning's hooks and callbacks."""
        if not hasattr(self.datamodule, "write_predictions"):
            check_writer(self.trainer, self.datamodule)
            self.trainer.predict(**{**kwargs, "return_predictions": False})
            return
        self.datamodule.predict_input = self._setting("input")
        outputs = self.trainer.predict(**{**kwargs, "return_predictions": True})
        self.datamodule.write_predictions(outputs, str(self.output))
        rank_zero_info(f"Predictions: {self.output}")

    def _setting(self, name: str) -> Any:
        return self.config[self.config.subcommand].get(name)

    def print_summary(self) -> None:
        """Print the summary of the run, where one was made."""
        for callback in self.trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, RunSummary):
                callback.print_summary(self.trainer)

    after_validate = after_test = print_summary
