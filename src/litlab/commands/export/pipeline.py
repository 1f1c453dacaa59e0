"""From a trained model to a checked folder: trace, write, compare, test, measure, describe."""

import copy
import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.artifact.manifest import FILES
from litlab.artifact.runtimes import Run, load_runtime
from litlab.artifact.servable import Servable, describe
from litlab.artifact.steps import restore, use_artifact
from litlab.cli.trainer import explain_untestable
from litlab.commands.export.folder import versions, write_folder
from litlab.commands.export.formats import TOLERANCE, write_graph
from litlab.commands.export.latency import of_module, of_runtime
from litlab.commands.export.operators import calls_torchao, operators_of
from litlab.commands.export.parity import compare
from litlab.commands.export.quantize import check_kind, quantized, traced
from litlab.commands.export.request import Source, Wanted
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.errors import UserError

Raw = tuple[Tensor, ...]
QUANTIZED_SAMPLES = 1000  # to compare with quantized layers in PyTorch, which are slow


def export_model(source: Source, wanted: Wanted, folder: Path) -> dict[str, Any]:
    """Write an export into an empty folder, and check it.

    Args:
        source: What to export.
        wanted: How.
        folder: The folder.

    Returns:
        The manifest.

    Raises:
        UserError: The model can't be exported this way, or the export differs from it.
    """
    model, data = source.model, source.data
    threads = wanted.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    restore(model, data, source.checkpoint)
    model.load_state_dict(source.checkpoint["state_dict"])
    serving = data.serving()
    reference = Servable(model, serving)
    if wanted.quantize is not None:
        check_kind(reference, wanted.quantize)
    metrics = {"run": _test(source)}
    model.trainer = None  # pyright: ignore[reportAttributeAccessIssue]  # it can't be copied
    reference.eval()
    module: nn.Module = reference
    data.prepare_data()  # which nothing else has done where there is no test
    data.setup("fit")
    if wanted.quantize is not None:
        module = quantized(
            copy.deepcopy(reference), serving, wanted.quantize, map(serving.raw, data.train_dataloader())
        )
    about = describe(serving, source.run, source.file)
    name, hint = about["run"]["name"], " (this can take a minute)" * (wanted.form == "aoti")
    rank_zero_info(f"Exporting {name} to {wanted.form}{hint}.")
    file = folder / FILES[wanted.form]
    program = traced(module, serving) if wanted.form != "torchscript" else None
    how = write_graph(wanted.form, program, reference, serving, file)
    made = versions(wanted, wanted.form == "pt2" and program is not None and calls_torchao(operators_of(program)))
    run, load_seconds = _loaded(wanted.form, file, serving, made, threads)

    batches, count, middle = _evaluated(data, serving)
    parity = {}
    if wanted.quantize is not None:  # what the runtime computes, then what quantizing does
        some = min(count, QUANTIZED_SAMPLES)
        first = islice(batches(), math.ceil(some / data.batch_size))
        parity["quantized"] = compare(module, run, serving, first, some, "comparing")
        parity["quantized"].check(TOLERANCE[wanted.form], quantized=True)
    parity["run"] = compare(reference, run, serving, batches(), count, "comparing with the run")
    if not math.isfinite(parity["run"].difference):
        raise UserError("export: some answers of the export are not numbers, those of the run are; nothing was written")
    if wanted.quantize is None:
        parity["run"].check(TOLERANCE[wanted.form], quantized=False)
    speed = _speed(wanted, run, reference, next(islice(batches(), middle, None)))
    use_artifact(model, data, run)
    metrics["exported"] = _test(source)
    return write_folder(
        folder, source, serving,
        {
            **about, "format": wanted.form, "how": how, "quantize": wanted.quantize, "threads": threads,
            "parity": {name: found.as_dict() for name, found in parity.items()},
            "metrics": metrics, "speed": speed, "load_seconds": round(load_seconds, 4), "versions": made,
        },
    )  # fmt: skip


def _test(source: Source) -> dict[str, float]:
    """Return the test metrics of the model as it is; none where it can't be tested."""
    if why := explain_untestable(source.model, source.data):
        rank_zero_info(f"{why}: the model is not tested.")
        return {}
    source.trainer.test(source.model, source.data, verbose=False)
    found = {name: value.item() for name, value in source.trainer.callback_metrics.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}  # R2 of a constant is not a number


def _loaded(form: str, file: Path, serving: Serving, made: dict[str, str], threads: int) -> tuple[Run, float]:
    """Return what runs a graph, and the seconds that loading takes once the runtime is imported."""
    names = [spec.name for spec in serving.inputs]
    start = time.perf_counter()
    run = load_runtime(form, file, names, made, threads)
    return run, time.perf_counter() - start


def _evaluated(data: ExperimentData, serving: Serving) -> tuple[Callable[[], Iterator[Raw]], int, int]:
    """Return what to compare on: the validation split, or the test's where there is none.

    Returns:
        What yields its raw inputs, its samples, and the number of the batch in the middle, whose texts are of a usual
        length.
    """
    split = "val" if "val" in data.sizes else "test"
    if split == "test":
        data.setup("test")
    loader = data.val_dataloader if split == "val" else data.test_dataloader
    return lambda: map(serving.raw, loader()), data.sizes[split], len(loader()) // 2


def _speed(wanted: Wanted, run: Run, reference: nn.Module, raw: Raw) -> dict[str, Any]:
    """Measure the export and what it is compared with, by side and size of the batch."""
    found = {}
    if "eager" in wanted.sides:
        found["eager"] = of_module(reference, raw)
    if "compiled" in wanted.sides:
        rank_zero_info("Compiling the model with torch.compile, to compare.")
        found["compiled"] = of_module(torch.compile(reference, dynamic=True), raw)  # pyright: ignore[reportArgumentType]
    return {**found, wanted.form: of_runtime(run, raw)}
