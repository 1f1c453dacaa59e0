"""Checkpoints: which are kept, how they are written and read, and how a run is resumed from them exactly."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.checkpointing.callback import RunCheckpoint
    from litlab.checkpointing.io import AtomicCheckpointIO, load_checkpoint
    from litlab.checkpointing.resume import ExactResume
    from litlab.checkpointing.sharded import ShardedCheckpointIO

__all__ = ["AtomicCheckpointIO", "ExactResume", "RunCheckpoint", "ShardedCheckpointIO", "load_checkpoint"]

__getattr__ = export_lazily(__name__)
