"""Shim."""

from litlab.checkpointing.exact_resume import ExactResume
from litlab.checkpointing.exact_resume import first_step_logged_again as find_first_step

__all__ = ["ExactResume", "find_first_step"]
