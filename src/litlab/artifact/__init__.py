"""Exported models: a folder with a graph, what is known of it, and what runs it. Nothing here needs the run."""

from litlab.artifact.artifact import Artifact
from litlab.artifact.manifest import is_exported, read_manifest

__all__ = ["Artifact", "is_exported", "read_manifest"]
