"""From a trained run to a checked folder: trace, write, compare, test, measure, describe."""

import copy
import math
import os
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from litlab.artifact import Artifact
from litlab.artifact.artifact import FILES, Run, take_arrays
from litlab.artifact.servable import load_servable
from litlab.artifact.trusted import remember
from litlab.cli.fit import Experiment, build_trainer
from litlab.cli.trainer import is_testable
from litlab.commands.export.folder import choose_folder, get_versions, write_folder, write_manifest
from litlab.commands.export.graph import trace, write_graph
from litlab.commands.export.parity import compare
from litlab.commands.export.quantize import check_kind, quantize
from litlab.data.serving import Serving
from litlab.data.store import replace_folder
from litlab.errors import UserError, first_line
from litlab.metrics import StageMetrics
from litlab.runs.table import show_table
from litlab.util.text import format_column

# Largest difference from eager PyTorch, of a probability or in standard deviations of a column. The
# kernels are the same ones for pt2 and torchscript; the others order and fuse their sums
# differently.
TOLERANCE = {"onnx": 1e-4, "pt2": 1e-5, "aoti": 1e-4, "torchscript": 1e-5}
QUANTIZED_SAMPLES = 1000  # to compare with quantized layers in PyTorch, which are slow
BATCH_SIZES = (1, 32)  # to measure, for as many seconds
SECONDS = 0.5
Metrics = dict[str, float]


def export_run(options: Namespace, settings: list[str]) -> None:
    """Export a run's model into a folder that appears when all of it is right."""
    # Build the run's model as `test` does, and test it.
    experiment, reference, about = load_servable(options.run, settings)
    serving = reference.serving
    target = choose_folder(options, experiment.command.config.run)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.quantize:
        check_kind(reference, options.quantize)
    trainer = build_trainer(experiment, None)
    metrics = test_model(trainer, experiment)
    reference.eval()
    data: Any = experiment.data
    data.prepare_data()  # which nothing else has done where there is no test
    data.setup()

    with replace_folder(target) as folder:
        # Quantize, trace and write.
        module: nn.Module = reference
        # It can't be copied
        reference.model.trainer = None  # pyright: ignore[reportAttributeAccessIssue]
        if options.quantize:
            training = map(serving.raw, data.train_dataloader())
            module = quantize(copy.deepcopy(reference), serving, options.quantize, training)
        program = None if options.format == "torchscript" else trace(module, serving)
        file = folder / FILES[options.format]
        write_graph(options.format, program, reference, file, options.opset)
        manifest = about | {
            "format": options.format, "quantize": options.quantize,
            "threads": torch.get_num_threads(), "size_bytes": file.stat().st_size,
            "versions": get_versions(options),
        }  # fmt: skip
        write_manifest(folder, manifest)

        # Load it, compare it, measure it, and test it in the model's place.
        start = time.perf_counter()
        run = Artifact(folder).run
        manifest["load_seconds"] = round(time.perf_counter() - start, 4)
        # The latter where nothing is for validation
        loader = data.val_dataloader() or data.test_dataloader()
        few = math.ceil(QUANTIZED_SAMPLES / data.batch_size) if options.quantize else None
        parity = compare(module, run, serving, islice(map(serving.raw, loader), few))
        parity.check(TOLERANCE[options.format], is_quantized=bool(options.quantize))
        manifest["parity"] = asdict(parity)
        manifest["speed"] = {
            "eager": measure_speed(take_arrays(reference), serving),
            "exported": measure_speed(run, serving),
        }
        manifest["metrics"] = {"run": metrics}
        test_metrics = getattr(experiment.model, "test_metrics", None)
        if metrics and isinstance(test_metrics, StageMetrics):
            count: Any = trainer.num_test_batches[0]
            batches = islice(data.test_dataloader(), count)
            exported = test_exported(test_metrics, batches, serving, run)
            manifest["metrics"]["exported"] = exported
        write_folder(folder, serving, run, manifest)
    remember(target)
    print_report(manifest)
    print(f"Exported: {os.path.relpath(target)}")


def test_model(trainer: Trainer, experiment: Experiment) -> Metrics:
    """Return the test metrics of the model as it is; none where it can't be tested."""
    if not is_testable(experiment.model, experiment.data):
        return {}
    trainer.test(experiment.model, experiment.data, verbose=False)
    return take_finite(trainer.callback_metrics)


@torch.inference_mode()  # as the test before, or its tensors could not be changed
def test_exported(
    metrics: StageMetrics, batches: Iterable[Any], serving: Serving, run: Run
) -> Metrics:
    """Return the test metrics of an exported model, which has no loss.

    Raises:
        UserError: They don't take what it returns.
    """
    for batch in batches:
        outputs = run([tensor.contiguous().numpy() for tensor in serving.raw(batch)])
        predicted = serving.predicted([torch.from_numpy(array) for array in outputs])
        target = serving.target(batch)
        try:
            metrics.add(torch.tensor(math.nan), predicted, target)
            metrics.flush()
        except (RuntimeError, ValueError, TypeError) as error:
            raise UserError(
                "export: the test metrics can't take what predict_step returns, "
                f"{(*predicted.shape,)}, for targets {(*target.shape,)} ({first_line(error)}); "
                "return the same as convert, or convert it in predicted() of the Serving"
            ) from error
    return take_finite(metrics.compute())


def take_finite(metrics: Mapping[str, Tensor]) -> Metrics:
    # R2 of a constant is NaN
    return {name: value.item() for name, value in metrics.items() if value.isfinite()}


def measure_speed(run: Run, serving: Serving) -> dict[str, float]:
    speed: dict[str, float] = {}
    for size in BATCH_SIZES:
        arrays = [
            tensor[torch.arange(size) % len(tensor)].contiguous().numpy()
            for tensor in serving.example()
        ]
        timer = Timer(
            "run(arrays)",
            globals={"run": run, "arrays": arrays},
            num_threads=torch.get_num_threads(),
        )
        speed[str(size)] = round(1e3 * timer.blocked_autorange(min_run_time=SECONDS).median, 4)
    return speed


def print_report(manifest: dict[str, Any]) -> None:
    parity = manifest["parity"]
    classes = (
        "" if parity["equal_classes"] is None else f", {parity['equal_classes']:.2%} equal classes"
    )
    print(
        f"Compared on {parity['samples']:,} samples: largest difference "
        f"{parity['difference']:.2g}{classes}."
    )
    rows = []
    for name, value in manifest["metrics"].get("exported", {}).items():
        rows.append((name, *format_column([manifest["metrics"]["run"][name], value])))
    for size, milliseconds in manifest["speed"]["eager"].items():
        exported = manifest["speed"]["exported"][size]
        rows.append((f"ms for a batch of {size}", *format_column([milliseconds, exported])))
    show_table(("", "run", "exported"), rows)
    print(f"{manifest['size_bytes'] / 2**20:.2f} MiB, loaded in {manifest['load_seconds']:.2f} s")
