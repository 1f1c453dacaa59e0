"""Exported models: a folder with a graph, what is known of it, and what runs it. Nothing here needs
the run.
"""

from litlab.artifact.artifact import Artifact, is_exported

__all__ = ["Artifact", "is_exported"]
