"""``CheckpointCLI``: what a command takes from a checkpoint and its run."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.callback import check_name
from litlab.checkpointing.io import load_checkpoint
from litlab.cli.bounds import check_values
from litlab.cli.data_facts import provides
from litlab.cli.parser import ExperimentParser
from litlab.cli.resources import check_processes
from litlab.cli.trainer import check_folders
from litlab.cli.trust import trust_of
from litlab.errors import UserError
from litlab.planning.layout import check_plan
from litlab.runs import claim
from litlab.runs.compare import read_config
from litlab.runs.config_diff import (
    Changes,
    Finished,
    changed_settings,
    check_resumption,
    consequences,
    describe,
    is_complete,
)
from litlab.runs.folder import RunFolder, read_or_set_aside
from litlab.runs.lock import is_first_process
from litlab.runs.resume_auto import choose_run
from litlab.runs.resume_plan import ResumePlan, resume_plan
from litlab.runs.saved import complete_write
from litlab.util.class_blocks import imported


class CheckpointCLI(LightningCLI):
    """A command line that continues from runs and checkpoints.

    ``--resume``, ``--run`` and a checkpoint alone put the config of the run in front of the command line. Settings of
    the model that nobody sets come from the checkpoint; what is set wins, and differences are listed.
    """

    def __init__(self, **settings: Any) -> None:
        self.checkpoint: dict[str, Any] | None = None  # the one that the model's settings are completed from
        self.new_optimizer = False  # whether its settings differ from those of the checkpoint
        self.changes: Changes = {}  # settings that differ from those of the run that the command continues from
        try:
            self._continue_from(resume_plan(sys.argv[1:]))
            super().__init__(**settings)
        finally:
            claim.release()

    def _continue_from(self, plan: ResumePlan) -> None:
        if plan.run is not None and not plan.resumes and not _is_ours(plan.run):
            plan = replace(plan, run=None)  # nothing is written into it
        self.plan = plan
        sys.argv[1:] = plan.command  # what Lightning starts the other processes of a run with
        self.trust = trust_of(plan.command, foreign=bool(plan.saved))
        self.trust.enforce()

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the command line, with the config of the run that it continues from in front.

        Where the run is found by the experiment's name, it is parsed once more when that is known.
        """
        assert isinstance(parser, ExperimentParser)
        self.config = self._parsed(parser)
        if self.plan.automatic or self.plan.requeued:
            self._continue_from(choose_run(self.plan, self._plain_config()))
            self.config = self._parsed(parser)

    def _parsed(self, parser: ExperimentParser) -> Any:
        plan = self.plan
        parser.arguments = plan.arguments
        if plan.saved and plan.run is None:  # the config was taken out of the checkpoint
            parser.names[plan.arguments[2]] = f"the config in {plan.checkpoint}"
        config = parser.parse_args(plan.arguments)
        self._check_config(config, config.subcommand)
        return config

    def _check_config(self, config: Namespace, verb: str) -> None:
        """Refuse values that make no sense on this machine or at all, before anything is built."""
        settings = config[verb]
        check_values(verb, settings)
        tried = settings.get("check") or settings.get("plan") is not None
        if verb == "fit":
            check_plan(settings, self.plan.resumes)
        if verb != "predict" and not tried:
            check_processes(settings.trainer)
        if verb == "fit" and not tried and not self.plan.resumes:
            check_folders(settings)

    def before_instantiate_classes(self) -> None:
        """Check what the config names against what it may name, before any of it is called."""
        self.trust.check(self.config[self.config.subcommand])

    def _parse_ckpt_path(self) -> None:
        """Complete the model's settings from the checkpoint; what the YAML or a flag sets wins and is listed."""
        verb, plan = self.config.subcommand, self.plan
        key = "resume" if verb == "fit" else "run"
        if self.config[verb].get(key) is not None and plan.checkpoint is None:
            raise UserError(f"{key}: it is set in a config; give it as a flag")
        path = plan.checkpoint or self.config[verb].get("ckpt_path")
        if path is None:
            if verb != "fit":
                raise UserError(f"{verb}: there are no weights to use; give --run RUN, or --ckpt_path FILE")
            return
        self.checkpoint = load_checkpoint(str(path), weights=verb != "fit")  # which reads its own part of shards later
        self.trust = replace(self.trust, anything=False)  # settings of the model come from it
        self.trust.enforce()
        plain = self._plain_config()
        if plan.run is not None and plan.resumes:
            self._compare_with(plan.run, plain)
        saved = self.checkpoint.get("hyper_parameters") or {}
        saved = {name: value for name, value in saved.items() if name != "_instantiator"}
        class_path = saved.pop("_class_path", None)
        model = self.config[verb].model
        what = plan.run.name if plan.run is not None and plan.saved else f"--ckpt_path {path}"
        if class_path is not None and class_path != model.class_path:
            raise UserError(f"model.class_path: {model.class_path}, but {what} holds a {class_path}; name that class")
        if verb != "fit":
            self._check_data_class(what)
        if plan.run is not None and plan.saved and not plan.resumes:
            self._compare_with(plan.run, plain)
        if class_path is None:
            return  # written by plain Python code: the config alone describes the model
        here = plain["model"]["init_args"]
        for name in (explicit := self._explicit_model_settings(here)):
            if name in saved and saved[name] != here[name] and not plan.saved:
                rank_zero_info(f"model.{name}: {here[name]} (the checkpoint has {saved[name]})")
        self.new_optimizer = any(
            name in saved and saved[name] != here.get(name) for name in ("optimizer", "param_groups")
        )
        init_args = {**saved, **{name: here[name] for name in explicit}}
        settings = {verb: {"model": {"class_path": class_path, "init_args": init_args}}}
        self.config = self.parser.parse_object(settings, self.config)
        if plan.run is not None and not plan.saved:  # its config is the user's, only now completed
            self._compare_with(plan.run, self._plain_config())

    def _check_data_class(self, what: str) -> None:
        """Refuse to evaluate with another class of data, which does not know the checkpoint's class names or scale."""
        assert self.checkpoint is not None
        trained = (self.checkpoint.get("datamodule_hyper_parameters") or {}).get("_class_path")
        path = self.config[self.config.subcommand].data.class_path
        if trained and trained.rpartition(".")[2] not in {base.__name__ for base in imported(path).__mro__}:
            raise UserError(f"data.class_path: {path}, but {what} was trained with {trained}; leave --data out")

    def _compare_with(self, run: RunFolder, config: dict[str, Any]) -> None:
        """Find the settings that differ from the run's, list them, and refuse those that it can't be resumed with."""
        assert self.checkpoint is not None
        self.changes = changed_settings(self.plan.saved or read_config(run.config), config)
        if self.plan.resumes:
            check_resumption(run.name, self.checkpoint, self.changes, config)
            over = not self.changes or is_complete(self.checkpoint, config)
            finished = over and read_or_set_aside(run.status).get("status") == "finished"
            if finished and not run.is_incomplete(config.get("test_after_fit", False)):
                raise Finished(run)
        if self.changes and self.plan.saved:
            rank_zero_info(f"Settings that differ from {run.name}: {describe(self.changes)}.")
        if self.plan.resumes:
            for line in consequences(self.changes):
                rank_zero_info(line)

    def _own_checkpoints(self) -> None:
        """Claim the folders of checkpoints for this run, and complete a write that was cut short there."""
        trainer = self.trainer
        for callback in trainer.checkpoint_callbacks:
            if type(callback) is ModelCheckpoint and callback.filename is not None:  # ours has done so
                check_name(callback.filename)
        if not is_first_process() or not trainer.loggers or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            return
        run = self.plan.run or RunFolder(Path(str(trainer.loggers[0].log_dir)))
        claim.own_checkpoints(trainer.checkpoint_callbacks, run, self.plan.resumes)
        if self.plan.resumes:
            assert self.plan.checkpoint is not None
            checkpoint = complete_write(self.plan.checkpoint, self.plan.saved)
            self.plan = replace(self.plan, checkpoint=checkpoint)

    def _plain_config(self) -> dict[str, Any]:
        text = self.parser.dump(self.config, format="json", skip_none=False, skip_validation=True)  # it was just parsed
        return json.loads(text)[self.config.subcommand]

    def _explicit_model_settings(self, here: dict[str, Any]) -> list[str]:
        """Return the model's settings that the user has set, without those of a run's config or the data."""
        verb = self.config.subcommand
        if saved := self.plan.saved:
            then = saved["model"].get("init_args") or {}
            return [name for name in here if name not in then or then[name] != here[name]]
        explicit = self.parser.parse_args(self.plan.arguments, defaults=False)[verb].model
        # A null that the data would fill says nothing against the checkpoint.
        names = explicit.get("init_args", Namespace()).as_dict()
        return [name for name in names if here[name] is not None or not provides(self.config[verb].data, name)]


def _is_ours(run: RunFolder) -> bool:
    """Return whether a fit has written a folder; others may hold ``checkpoints/`` and a ``config.yaml``, too."""
    return any(file.is_file() for file in (run.status, run.metrics, run.provenance))
