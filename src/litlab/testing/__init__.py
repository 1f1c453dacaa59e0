"""Contract tests: what a team's own modules are put through. Needs pytest."""

from litlab.testing.contract_tests import ModuleContract, build_experiment

__all__ = ["ModuleContract", "build_experiment"]
