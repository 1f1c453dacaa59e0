"""``python -m PACKAGE shards``: the images of an experiment as shards, which are streamed."""

import os
from pathlib import Path

from litlab.errors import UserError
from litlab.util.options import Options, count

DESCRIPTION = """\
Write the image files of an experiment into shards in a new folder: a few large tar files for each
split, in WebDataset's layout. --data.dataset shards reads them (docs/streaming.md). All other
arguments are settings. Every image is decoded first, which finds damaged ones, unless --data.cache
is none.

  %(prog)s --config configs/mine.yaml --data.dataset folder --data.path DIR \\
      --data.cache none --output SHARDS
"""


def main(arguments: list[str]) -> int:
    options = Options("shards", DESCRIPTION)
    options.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="new folder to write"
    )
    options.add_argument(
        "--shard_mb", metavar="N", type=count, default=64, help="size of a shard in MB (default 64)"
    )
    chosen, settings = options.parse_known_args(arguments)

    if os.path.lexists(chosen.output):
        raise UserError(f"--output: {chosen.output} exists already; name a new folder")

    from litlab.cli.config import Command
    from litlab.data import ImageData
    from litlab.data.images.shards import write_shards
    from litlab.data.store import new_folder

    data = Command(["fit", *settings]).build_data()
    if not isinstance(data, ImageData):
        raise UserError(
            f"shards: they are for images, and {type(data).__name__} has none; use ImageData"
        )
    with new_folder(chosen.output) as folder:
        data.prepare_data()
        data.setup()
        write_shards(data, folder, chosen.shard_mb * 1_000_000)

    print(f"Written: {chosen.output}, from {data.description}")
    return 0
