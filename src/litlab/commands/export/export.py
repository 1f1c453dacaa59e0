"""``python -m PACKAGE export``: a run as a folder that works without this project."""

from pathlib import Path

from litlab.errors import UserError
from litlab.util.options import Options, count

FORMATS = {
    "onnx": "for ONNX Runtime: the smallest to install, on most systems and languages",
    "pt2": "a graph of torch.export, to load in PyTorch or compile later",
    "aoti": "compiled by AOTInductor for this machine's kind of processor and this version of "
    "torch",
    "torchscript": "PyTorch's former format, which it no longer develops",
}
KINDS = {
    "int8-weights": "weights of linear layers and embeddings as int8",
    "int8-dynamic": "linear layers computed in int8, the scale of their inputs measured in each "
    "call",
    "int8-static": "linear layers and convolutions computed in int8, all scales measured on "
    "training batches",
}
DESCRIPTION = """\
Write a run's model with its preprocessing to a folder that works without this project and without
the checkpoint (docs/deploy.md). The result is compared with the run on its validation data, and
nothing is written if they differ. All other arguments are settings, such as --data.path if the data
has been moved.

  %(prog)s --run cifar --format onnx
  %(prog)s --run mine/version_3 --format aoti --quantize int8-static --output DIR
"""


def main(arguments: list[str]) -> int:
    options = Options("export", DESCRIPTION)
    add, formats, kinds = options.add_argument, explain(FORMATS), explain(KINDS)
    add("--run", required=True, help="run or checkpoint to export")
    add("--format", required=True, choices=FORMATS, help=formats)
    add("--quantize", choices=KINDS, help=kinds)
    text = (
        "folder to write (default: exported/FORMAT[-KIND] in the run's folder); an export there is "
        "replaced"
    )
    add("--output", metavar="DIR", type=Path, help=text)
    add("--opset", metavar="N", type=count, help="opset of ONNX (default: torch's choice)")
    text = "threads to measure with (default: torch's choice)"
    add("--threads", metavar="N", type=count, help=text)
    chosen, settings = options.parse_known_args(arguments)
    if chosen.format == "torchscript" and chosen.quantize:
        raise UserError(
            "--quantize: TorchScript has no quantized layers; choose --format onnx, pt2 or aoti"
        )
    if chosen.opset and chosen.format != "onnx":
        raise UserError(
            f"--opset: {chosen.format} has no opset; choose --format onnx, or leave it out"
        )

    from litlab.commands.export.export_run import export_run

    try:
        export_run(chosen, settings)
    except ModuleNotFoundError as error:
        raise UserError(
            f"export: it needs {error.name}; pip install -e '.[export,torchao]'"
        ) from error
    return 0


def explain(choices: dict[str, str]) -> str:
    return "; ".join(map(": ".join, choices.items()))
