"""``fit --plan``: what a run needs of each of many devices, found out on this machine without running it."""

import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

import litlab
from litlab.callbacks import (
    AGC,
    ActivationCheckpointing,
    Compile,
    FreeGradients,
    Freeze,
    GradNorms,
    OptimizerInBackward,
)
from litlab.callbacks.averaging import AveragedWeights
from litlab.callbacks.batches import describe
from litlab.errors import UserError, first_line
from litlab.parallel.plan import networks, plan_of
from litlab.planning.batch import training_batch, without_download
from litlab.planning.display import show, show_command
from litlab.planning.estimate import Estimate, estimate
from litlab.planning.fake import without_numbers
from litlab.planning.layout import Devices, Layout, of_strategy, others, parse
from litlab.planning.ledger import UPDATE
from litlab.planning.measure import Job, measure
from litlab.planning.step import Measured
from litlab.util.device import GIB
from litlab.util.progress import progress_bar

LITLAB = str(Path(litlab.__file__).parent)
KEPT = (Freeze, ActivationCheckpointing, OptimizerInBackward)  # callbacks that change what a step keeps
# By what the Trainer calls them; numbers of 16 bits are all of one size.
PRECISIONS = {"auto": "bf16-mixed", None: "32-true", "16-mixed": "bf16-mixed", "16-true": "bf16-true"}
KNOWN = ("32-true", "bf16-mixed", "bf16-true", "64-true")
GPU_GIB = 80.0

Build = Callable[[], tuple[LightningModule, list[Callback]]]


def plan_command(command: Any) -> None:
    """Print the plan of a command line of ``fit``.

    Args:
        command: The `litlab.cli.config.Command`.
    """
    from litlab.cli.argv import take_flag
    from litlab.cli.sections import SECTIONS, section_callbacks

    config = command.config
    if config.resume or config.check or config.ckpt_path:
        raise UserError("--plan: it looks at a fit from its start; leave --resume, --ckpt_path and --check out")
    if config.plan_memory == math.inf:
        raise UserError("plan_memory: inf is not valid; give the GiB of a device, such as 80")
    data = command.build_data()
    without_download(data)
    command.fill_from_data(data)

    def build() -> tuple[LightningModule, list[Callback]]:
        built = command.build("trainer", *SECTIONS, "channels_last", "threads")
        named = built.trainer.callbacks or []
        return command.build_model(), [*section_callbacks(built), *(named if isinstance(named, list) else [named])]

    for name, none in (("logger", False), ("plugins", None), ("profiler", None)):
        config.trainer[name] = none  # they are not looked at, and may start something
    settings = config.trainer.clone()
    config.trainer.strategy = "auto"
    words = command.typed
    for flag in ("--plan", "--plan_memory"):
        _, words = take_flag(flag, words)
    plan(config.plan, config.plan_memory, settings, build, command.trainer_class, data, words)


def plan(
    wanted: str,
    gib: float | None,
    settings: Any,
    build: Build,
    trainer_class: type[Trainer],
    data: LightningDataModule,
    words: list[str],
) -> tuple[Estimate, list[Estimate]]:
    """Estimate memory and traffic of a fit and of its other strategies, and print them. Nothing is trained.

    Args:
        wanted: Nodes and devices of each, such as 2x8.
        gib: Memory of a device in GiB; None: that of this machine's GPU, or 80.
        settings: The section ``trainer``, not built.
        build: Makes the module and all callbacks of the run.
        trainer_class: Makes the Trainer.
        data: The run's data.
        words: The command line, without what asks for a plan.

    Returns:
        The estimates of the config and of the others.

    Raises:
        UserError: If the run can't be planned.
    """
    devices = _devices(wanted, gib, settings["accelerator"])
    own = of_strategy(settings["strategy"], devices)
    precision = _precision(settings["precision"], devices.gpus)
    with without_numbers():
        model, callbacks = build()
        divisible = all(_is_divisible(network) for network in networks(model).values())
    if not model.automatic_optimization:
        raise UserError(
            f"--plan: {type(model).__name__} steps its optimizers itself, so where a step begins and ends is not "
            "known; --check measures what it needs"
        )
    own = replace(own, checkpointing=any(isinstance(one, ActivationCheckpointing) for one in callbacks))
    if own.kind != "ddp" and (needed := _needed(own, settings, callbacks)):
        raise UserError(f"trainer.strategy: it divides the model, for which fit needs {' '.join(needed)}; add that")
    batch, where = training_batch(data)
    job = _job(settings, precision, build, callbacks, trainer_class, data, batch, devices.gpus)
    ways = list(others(own, devices, divisible))
    measured: dict[Layout, Measured] = {}
    estimates = [_estimate(job, own, devices, measured)]
    refused: set[Layout] = set()
    for way in progress_bar(ways, desc="planning"):
        if replace(way, checkpointing=False) not in refused:
            estimates.append(tried(job, way, devices, measured))
            refused |= {way} if estimates[-1].refused else set()
    numbers = sum(parameter.numel() for parameter in model.parameters())
    more = f", {job.accumulated} of them to a step" if job.accumulated > 1 else ""
    facts = [
        ("model", f"{type(model).__name__}, {numbers:,} parameters, {precision}"),
        ("batch", f"{describe(batch)} on each device, {where}{more}"),
    ]
    show(estimates[0], estimates[1:], devices, facts)
    if not estimates[0].fits(devices):
        way = next((one.layout for one in estimates[1:] if one.fits(devices)), None)
        needed = _needed(way, settings, callbacks) if way is not None and way.kind != "ddp" else []
        show_command(words, way, devices, needed)
    return estimates[0], estimates[1:]


def tried(job: Job, way: Layout, devices: Devices, measured: dict[Layout, Measured]) -> Estimate:
    """Estimate a layout that nobody has asked for, which model and strategy may refuse.

    They do so by any exception: a `UserError` of ours, a RuntimeError of torch where a network can't be divided, an
    AttributeError within FSDP. What litlab itself raises beside UserErrors is a bug, and goes on.

    Args:
        job: What is trained.
        way: How it is divided.
        devices: The devices.
        measured: What was measured already; this is added.
    """
    try:
        return _estimate(job, way, devices, measured)
    except UserError as error:
        return Estimate(way, refused=str(error).removeprefix("trainer.strategy: "))
    except Exception as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename.startswith(LITLAB):
            raise
        return Estimate(way, refused=f"not known, as its step fails: {first_line(error)}")


def _estimate(job: Job, layout: Layout, devices: Devices, measured: dict[Layout, Measured]) -> Estimate:
    """Estimate a layout; a step of DDP, a pipeline and one device is measured once, and so is the optimizer's."""
    same = replace(layout, offload=False)
    if layout.kind != "sharded" or devices.count == 1:
        same = Layout("ddp", checkpointing=layout.checkpointing)
    plain = replace(same, checkpointing=False)
    if same not in measured:
        found = measure(job, same, devices, updates=plain not in measured)
        if plain in measured:
            same_update = measured[plain]
            found.state, found.peaks[UPDATE] = same_update.state, same_update.peaks[UPDATE]
            found.sent |= {key: size for key, size in same_update.sent.items() if key[1] == UPDATE}
        measured[same] = found
    return estimate(layout, measured[same], devices, job)


def _devices(wanted: str, gib: float | None, accelerator: Any) -> Devices:
    nodes, each = parse(wanted)
    if accelerator == "cpu":
        return Devices(nodes, each, round(gib * GIB) if gib else psutil.virtual_memory().total // each, gpus=False)
    if gib is None and torch.cuda.is_available():
        return Devices(nodes, each, torch.cuda.get_device_properties(0).total_memory, gpus=True)
    return Devices(nodes, each, round((gib or GPU_GIB) * GIB), gpus=True)


def _precision(wanted: Any, gpus: bool) -> Any:
    if wanted == "auto" and not gpus:
        return "auto"
    chosen = PRECISIONS.get(wanted, str(wanted))
    chosen = {"32": "32-true", "64": "64-true", "16": "bf16-mixed", "bf16": "bf16-mixed"}.get(chosen, chosen)
    if chosen not in KNOWN:
        raise UserError(
            f"trainer.precision: --plan does not know what {wanted} keeps in memory; choose {', '.join(KNOWN)}"
        )
    return chosen


def _needed(way: Layout, settings: Any, callbacks: list[Callback]) -> list[str]:
    """Return the flags without which a fit refuses a strategy that divides the model."""
    sections = ["agc"] * any(isinstance(one, AGC) for one in callbacks)
    sections += ["grad_norms"] * any(isinstance(one, GradNorms) for one in callbacks)
    needed = [word for section in sections for word in (f"--{section}", "null")]
    if str(settings["precision"]) in ("16", "16-mixed"):  # with a scaler
        needed += ["--trainer.precision", "bf16-mixed"]
    compiles = any(isinstance(one, Compile) and one.mode is not None and one.dynamic is not False for one in callbacks)
    return [*needed, *(["--compile.dynamic", "false"] if compiles and way.tensor > 1 else [])]


def _is_divisible(network: Any) -> bool:
    known = plan_of(network)
    return bool(known.columns or known.rows)


def _job(
    settings: Any, precision: Any, build: Build, callbacks: list[Callback], trainer_class: type[Trainer],
    data: LightningDataModule, batch: Any, gpus: bool,
) -> Job:  # fmt: skip
    schedules = [one for one in callbacks if isinstance(one, GradientAccumulationScheduler)]
    accumulated = max([settings["accumulate_grad_batches"], *(n for one in schedules for n in one.scheduling.values())])
    average = any(isinstance(one, AveragedWeights) for one in callbacks)

    def parts() -> tuple[LightningModule, list[Callback]]:
        model, made = build()
        kept: list[Callback] = [one for one in made if isinstance(one, KEPT)]
        return model, [*kept, FreeGradients()]

    def trainer(**others: Any) -> Trainer:
        return trainer_class(
            precision=precision, max_epochs=settings["max_epochs"], gradient_clip_val=settings["gradient_clip_val"],
            gradient_clip_algorithm=settings["gradient_clip_algorithm"], num_sanity_val_steps=0, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False, **others,
        )  # fmt: skip

    return Job(parts, trainer, data, batch, accumulated, gpus, average)
