"""``python -m PACKAGE export``: a run as a folder that works without this project."""

from pathlib import Path

from litlab.cli.argv import ALONE
from litlab.errors import UserError
from litlab.util.numbers import count
from litlab.util.options import Options, answer

FORMATS = {
    "onnx": "for ONNX Runtime: the smallest to install, on most systems and languages",
    "pt2": "a graph of torch.export, to load in PyTorch or compile later",
    "aoti": "compiled by AOTInductor for this machine's kind of processor and this version of torch",
    "torchscript": "PyTorch's former format, which it no longer develops",
}
KINDS = {
    "int8-weights": "weights of linear layers and embeddings as int8",
    "int8-dynamic": "linear layers computed in int8, the scale of their inputs measured in each call",
    "int8-static": "linear layers and convolutions computed in int8, all scales measured on training batches",
    "int4-weights": "weights of linear layers as int4; refused where torchao has no kernels for this CPU",
}
SIDES = ("eager", "compiled")
DESCRIPTION = """\
Write a run's model with its preprocessing as a folder that needs neither this project nor its checkpoint
(docs/deploy.md). It is compared with the run on its validation data, and nothing is written where they differ.
All other arguments are settings, such as --data.path where the data has been moved.

  %(prog)s --run cifar --format onnx
  %(prog)s --run mine/version_3 --format aoti --quantize int8-static --output DIR
"""


def main(arguments: list[str]) -> int:
    """Run the verb ``export``.

    Args:
        arguments: What follows the verb on the command line.

    Returns:
        The exit code: 0; 2 after one line on what is wrong.
    """
    return answer(_export, arguments)


def _export(arguments: list[str]) -> int:
    options = Options("export", DESCRIPTION)
    options.add_argument("--run", required=True, help="run or checkpoint to export")
    options.add_argument("--format", required=True, choices=FORMATS, help=_listed(FORMATS))
    options.add_argument("--quantize", choices=KINDS, help=_listed(KINDS))
    options.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="folder to write (default: exported/FORMAT[-KIND] in the run's folder); an export there is replaced",
    )
    options.add_argument("--threads", metavar="N", type=count, help="threads to measure with (default: torch's choice)")
    options.add_argument(
        "--compare", metavar="A,B", type=_sides, default=SIDES,
        help="what to measure beside it: eager, compiled or both (default); compiling can take minutes",
    )  # fmt: skip
    chosen, settings = options.parse_known_args(arguments)
    if chosen.format == "torchscript" and chosen.quantize:
        raise UserError("--quantize: TorchScript has no quantized layers; choose --format onnx, pt2 or aoti")
    from litlab.cli.quiet import silence_noise
    from litlab.commands.export.export_run import export_run
    from litlab.commands.export.request import Wanted

    silence_noise()
    wanted = Wanted(chosen.format, chosen.quantize, chosen.threads, chosen.compare)
    export_run(["test", "--run", chosen.run, *ALONE, *settings], wanted, chosen.output)
    return 0


def _listed(choices: dict[str, str]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in choices.items())


def _sides(text: str) -> tuple[str, ...]:
    sides = tuple(text.split(","))
    if not set(sides) <= set(SIDES):
        raise UserError(f"--compare: {text} is not valid; choose from {', '.join(SIDES)}")
    return sides
