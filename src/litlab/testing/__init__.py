"""Contract tests: what a team's own modules are put through. Needs pytest."""

from litlab.testing.contract_tests import ModuleContract, WithoutRunning

__all__ = ["ModuleContract", "WithoutRunning"]
