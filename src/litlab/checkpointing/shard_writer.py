"""What writes a process's part of a sharded checkpoint."""

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.futures import Future

from litlab.checkpointing.io import no_room
from litlab.checkpointing.shards import METADATA, checksum_of
from litlab.errors import UserError


class ShardWriter(FileSystemWriter):
    """DCP's writer, which also keeps checksums, writes no absolute path, and says what to do where a disk is full."""

    def __init__(self, folder: Path, path: Path) -> None:
        super().__init__(folder, thread_count=1)
        self.file = path
        self.checksums: dict[str, int] = {}

    def storage_meta(self) -> StorageMeta | None:
        """Return nothing: it would be the absolute path."""
        return None

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[Any]:
        """Write the part, and sum it up.

        Raises:
            UserError: If there is no room for it.
        """
        try:
            done = super().write_data(plan, planner)
        except Exception as error:
            mine = [planner.resolve_data(item) for item in plan.items]
            if full := no_room(error, self.file, mine):
                raise UserError(full) from error
            raise
        for name in {result.storage_data.relative_path for result in done.wait()}:
            self.checksums[name] = checksum_of(Path(self.path) / name)
        return done

    def finish(self, metadata: Metadata, results: Any) -> None:
        """Write the metadata of all parts, and sum it up."""
        super().finish(metadata, results)
        self.checksums[METADATA] = checksum_of(Path(self.path) / METADATA)
