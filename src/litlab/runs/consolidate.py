"""``python -m PACKAGE consolidate``: a sharded checkpoint as one file."""

from litlab.runs.find import RUN_HELP, find_checkpoint
from litlab.util.options import Options

DESCRIPTION = """\
Write a sharded checkpoint, which is a small file and a folder, as one file beside them that holds
everything: weights, the state of optimizers, settings. All commands read sharded checkpoints as
they are, too; one file is easier to copy, and plain torch.load reads it.

  %(prog)s mine/version_3      its best checkpoint, or its last where it keeps no best one
  %(prog)s lightning_logs/mine/version_3/checkpoints/last.ckpt
"""


def main(arguments: list[str]) -> int:
    options = Options("consolidate", DESCRIPTION)
    options.add_argument("checkpoint", metavar="CHECKPOINT_OR_RUN", help=RUN_HELP)
    path = find_checkpoint(options.parse_args(arguments).checkpoint)

    # After what is wrong with the command line was said, as it takes a second
    import torch

    from litlab.checkpointing.io import AtomicCheckpointIO
    from litlab.util.files import check_replaceable, stage_output

    # Another suffix: `*.ckpt` in the folder are the run's, one of which --resume takes
    output = path.with_suffix(".pt")
    check_replaceable(output)
    checkpoint = AtomicCheckpointIO().load_checkpoint(path)
    # Under another name until it is complete
    with stage_output(output) as file, file.open("wb") as stream:
        torch.save(checkpoint, stream)
    print(
        f"Written: {output} ({output.stat().st_size / 2**20:,.1f} MiB, after step "
        f"{checkpoint['global_step']})"
    )
    return 0
