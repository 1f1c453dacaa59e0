"""One trial: the experiment's own ``fit`` for a few steps, in a process of its own."""

import atexit
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Checkpoint,
    DeviceStatsMonitor,
    EarlyStopping,
    LearningRateFinder,
    LearningRateMonitor,
    ProgressBar,
)

from litlab.bench.clock import Plan, TrialClock
from litlab.bench.flops import peak_flops
from litlab.callbacks import MemorySnapshot
from litlab.callbacks.finder import Finder
from litlab.cli.config import Command
from litlab.cli.fit import Experiment, build
from litlab.cli.messages import describe_error
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer
from litlab.runs.provenance import hardware
from litlab.sweep.processes import print_to
from litlab.util.device import has_fast_bfloat16
from litlab.util.steps import Enough
from litlab.util.team import use_package

# What a fit writes, ends with or is started with, and more than one process; after the user's own flags.
NOTHING_ELSE = (
    "--trainer.logger=false", "--checkpoint=null", "--early_stopping=null", "--test_after_fit=false",
    "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.num_sanity_val_steps=0",
    "--trainer.limit_val_batches=0", "--trainer.max_time=null", "--trainer.profiler=null",
    "--trainer.fast_dev_run=false", "--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.strategy=auto",
)  # fmt: skip
# Callbacks that look for settings, write, or need a logger or a validation.
LEFT_OUT = (
    BatchSizeFinder, Checkpoint, DeviceStatsMonitor, EarlyStopping, Finder, LearningRateFinder, LearningRateMonitor,
    MemorySnapshot, ProgressBar,
)  # fmt: skip

OF_THE_DATA = ("batch_size", "num_workers", "prefetch_factor", "pin_memory")
DTYPES = {"bf16": torch.bfloat16, "16": torch.float16, "64": torch.float64}  # by a part of a precision's name


def measure(argv: list[str], connection: Connection, clock: Callable[..., TrialClock]) -> None:
    """Fit with a clock, which ends it, and without what a fit would write.

    Args:
        argv: A command line of ``fit``.
        connection: Where to report.
        clock: Makes the clock: a `TrialClock` that lacks its report.
    """
    experiment = build(Command(argv))
    trainer: Any = build_trainer(experiment, None)
    callbacks = [callback for callback in trainer.callbacks if not isinstance(callback, LEFT_OUT)]

    def report(found: dict[str, Any]) -> None:
        connection.send({**found, **_facts(experiment, trainer)})

    trainer.callbacks = [clock(report=report), *callbacks]  # set up first
    with contextlib.suppress(Enough):
        trainer.fit(experiment.model, experiment.data)


def _facts(experiment: Experiment, trainer: Any) -> dict[str, Any]:
    """Return what is known of the experiment and the machine; settings as YAML."""
    config = experiment.command.config
    data = config.data.get("init_args") or {}
    compiled = config.get("compile")
    settings = {
        "compile": None if compiled is None else compiled.init_args.mode,
        "channels_last": config.channels_last,
        "activation_checkpointing": config.get("activation_checkpointing"),
        "threads": torch.get_num_threads(),
        **{name: data[name] for name in OF_THE_DATA if name in data},
    }
    if trainer.optimizers and "fused" in trainer.optimizers[0].defaults:
        settings["fused"] = trainer.optimizers[0].defaults["fused"]
    plain = {name: json.dumps(value, default=str) for name, value in settings.items()}
    return {
        "experiment": config.experiment,
        "current": {name: value.strip('"') for name, value in plain.items()} | {"precision": trainer.precision},
        "bfloat16": has_fast_bfloat16(trainer.strategy.root_device),
        "convolutions": any(parameter.ndim == 4 for parameter in experiment.model.parameters()),
        "matmul": torch.get_float32_matmul_precision(),
        "hardware": hardware(trainer),
    }


def run_trial(
    connection: Connection, team: str, arguments: list[str], log: Path, seconds: float, plan: dict[str, int] | None
) -> None:
    """Run a trial, in a process that `litlab.sweep.processes.run` has started.

    Args:
        connection: Where it reports what it has measured, and without a plan also the operations of a step.
        team: Name of the team's package.
        arguments: The command line of ``fit``.
        log: File for its output. The compiler's cache is beside it.
        seconds: For the timed steps, approximately.
        plan: Which steps to time, as of `Plan`; None: as many as there is time for.
    """
    print_to(log)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(log.parent / "compiled")  # the first start is cold, whatever was before
    use_package(team)
    silence_noise()
    clock = partial(TrialClock, seconds, None if plan is None else Plan(**plan))
    code = 0
    try:
        measure(["fit", *arguments, *NOTHING_ELSE], connection, clock)
    except Exception as error:
        line = describe_error(error)
        if line is None:
            traceback.print_exc()
        else:
            print(f"error: {line}", file=sys.stderr)
        code = 1 if line is None else 2
    sys.stdout.flush()
    atexit._run_exitfuncs()  # multiprocessing leaves by os._exit
    sys.exit(code)


def report_peak(connection: Connection, device: str, precision: str, matmul: str) -> None:
    """Report how many operations a second a device does at a precision, in a process that `run` has started.

    Args:
        connection: Where to report.
        device: Its type.
        precision: Of the Trainer.
        matmul: As of `torch.set_float32_matmul_precision`.
    """
    torch.set_float32_matmul_precision(matmul)
    dtype = next((dtype for part, dtype in DTYPES.items() if part in precision), torch.float32)
    connection.send(peak_flops(torch.device(device), dtype))
