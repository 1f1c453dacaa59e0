"""From a trained run to a checked folder: trace, write, compare, test, measure, describe."""

import copy
import math
import shutil
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torch.utils.benchmark import Timer

from litlab.artifact.manifest import FILES
from litlab.artifact.runtimes import Run, load_runtime
from litlab.artifact.servable import Servable, describe
from litlab.artifact.steps import restore, serving_data, use_artifact
from litlab.cli.argv import pin_run
from litlab.cli.config import Command
from litlab.cli.fit import Experiment, build
from litlab.cli.trainer import build_trainer, explain_untestable
from litlab.commands.export.folder import choose_folder, get_versions, write_folder
from litlab.commands.export.graph import TOLERANCE, trace, write_graph
from litlab.commands.export.parity import Parity, compare
from litlab.commands.export.quantize import check_kind, quantize
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.data.store import new_folder
from litlab.errors import UserError
from litlab.runs.folder import RunFolder
from litlab.util.text import print_table

QUANTIZED_SAMPLES = 1000  # to compare with quantized layers in PyTorch, which are slow
BATCH_SIZES = (1, 32)  # to measure, for as many seconds
SECONDS = 0.5


def export_run(argv: list[str], options: Namespace) -> None:
    """Export a run's model into a folder that appears when all of it is right.

    Args:
        argv: A command line of ``test``.
        options: Those of ``export``: ``format``, ``quantize``, ``output``, ``threads``, ``compiled``.

    Raises:
        UserError: If it can't be exported, the export differs from the run, or something else would be lost.
    """
    # Build the run's model as `test` does, and test it.
    command = Command(pin_run(argv))
    experiment = build(command)
    if experiment.export is not None:
        raise UserError(f"--run: {experiment.export} is an exported model; name the run that it is from")
    run_folder = RunFolder(Path(command.config.run)) if command.config.run else None
    target = choose_folder(options, run_folder)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    data = serving_data(experiment.data, experiment.model, "export")
    trainer, reference = build_trainer(experiment, None), restore_model(experiment, data)
    if options.quantize is not None:
        check_kind(reference, options.quantize)
    metrics = {"run": test_model(trainer, experiment)}
    reference.eval()
    data.prepare_data()  # which nothing else has done where there is no test
    data.setup("fit")

    with new_folder(target) as folder:
        # Quantize, trace and write.
        about = describe(reference.serving, run_folder, Path(command.config.ckpt_path))
        hint = " (this can take a minute)" if options.format == "aoti" else ""
        rank_zero_info(f"Exporting {about['run']['name']} to {options.format}{hint}.")
        module: nn.Module = reference
        if options.quantize is not None:
            reference.model.trainer = None  # pyright: ignore[reportAttributeAccessIssue]  # it can't be copied
            training = map(reference.serving.raw, data.train_dataloader())
            module = quantize(copy.deepcopy(reference), reference.serving, options.quantize, training)
        program = None if options.format == "torchscript" else trace(module, reference.serving)
        file = folder / FILES[options.format]
        write_graph(options.format, program, reference, file)

        # Load it, compare it, measure it, and test it in the model's place.
        versions = get_versions(options)
        start = time.perf_counter()
        run = load_runtime(options.format, file, reference.serving.names, versions, options.threads)
        seconds = time.perf_counter() - start
        parity = check_parity(module, run, data, reference.serving, options)
        speed = measure_speed(reference, run)
        use_artifact(experiment.model, data, run)
        metrics["exported"] = test_model(trainer, experiment)
        manifest = about | {
            "format": options.format, "quantize": options.quantize, "threads": torch.get_num_threads(),
            "parity": asdict(parity), "metrics": metrics, "speed": speed, "load_seconds": round(seconds, 4),
            "size_bytes": file.stat().st_size, "versions": versions,
        }  # fmt: skip
        write_folder(folder, experiment, reference.serving, run, manifest)
        shutil.rmtree(target, ignore_errors=True)  # an earlier export
    print_report(manifest, target)


def restore_model(experiment: Experiment, data: ExperimentData) -> Servable:
    """Give model and data the state of the checkpoint, and put the preprocessing before the model."""
    assert experiment.checkpoint is not None
    restore(experiment.model, data, experiment.checkpoint)
    experiment.model.load_state_dict(experiment.checkpoint["state_dict"])
    return Servable(experiment.model, data.serving())


def test_model(trainer: Trainer, experiment: Experiment) -> dict[str, float]:
    """Return the test metrics of the model as it is; none where it can't be tested."""
    reason = explain_untestable(experiment.model, experiment.data)
    if reason is not None:
        rank_zero_info(f"{reason}: the model is not tested.")
        return {}
    trainer.test(experiment.model, experiment.data, verbose=False)
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {name: value for name, value in metrics.items() if math.isfinite(value)}  # R2 of a constant is NaN


def check_parity(module: nn.Module, run: Run, data: ExperimentData, serving: Serving, options: Namespace) -> Parity:
    """Compare the export with the model on its validation data, or its test data where there is none.

    Args:
        module: The model, quantized as the export is.
        run: The exported model.
        data: The run's data.
        serving: Its inputs and outputs.
        options: ``format`` and ``quantize``.

    Raises:
        UserError: If they differ by more than rounding.
    """
    split = "val" if "val" in data.sizes else "test"
    if split == "test":
        data.setup("test")
    loader: Any = data.val_dataloader() if split == "val" else data.test_dataloader()
    count = len(loader) if options.quantize is None else math.ceil(QUANTIZED_SAMPLES / data.batch_size)
    batches = islice(map(serving.raw, loader), count)
    parity = compare(module, run, serving, batches, min(data.sizes[split], count * data.batch_size))
    parity.check(TOLERANCE[options.format], is_quantized=options.quantize is not None)
    return parity


def measure_speed(reference: Servable, run: Run) -> dict[str, dict[str, float]]:
    """Return the median milliseconds for a batch by its size, of PyTorch (``eager``) and of the export."""
    example = reference.serving.example()
    speed: dict[str, dict[str, float]] = {"eager": {}, "exported": {}}
    for size in BATCH_SIZES:
        rows = torch.arange(size) % len(example[0])
        tensors = [tensor[rows].contiguous() for tensor in example]
        arrays = [tensor.numpy() for tensor in tensors]
        with torch.inference_mode():
            speed["eager"][str(size)] = measure(lambda tensors=tensors: reference(*tensors))
        speed["exported"][str(size)] = measure(lambda arrays=arrays: run(arrays))
    return speed


def measure(call: Callable[[], object]) -> float:
    """Return the median milliseconds of a call, on as many threads as torch has."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return round(1e3 * timer.blocked_autorange(min_run_time=SECONDS).median, 4)


def print_report(manifest: dict[str, Any], folder: Path) -> None:
    """Print parity, metrics, size and speed of an export."""
    from rich.table import Table

    parity = manifest["parity"]
    classes = "" if parity["equal_classes"] is None else f", {parity['equal_classes']:.2%} equal classes"
    print(f"Compared on {parity['samples']:,} samples: largest difference {parity['difference']:.2g}{classes}.")
    table = Table("", "run", "exported")
    for name, value in manifest["metrics"]["run"].items():
        table.add_row(name, f"{value:.4f}", f"{manifest['metrics']['exported'][name]:.4f}")
    for size, milliseconds in manifest["speed"]["eager"].items():
        exported = manifest["speed"]["exported"][size]
        table.add_row(f"ms for a batch of {size}", f"{milliseconds:.2f}", f"{exported:.2f}")
    print_table(table)
    print(f"{manifest['size_bytes'] / 2**20:.2f} MiB, loaded in {manifest['load_seconds']:.2f} s.\nExported: {folder}")
