"""Tests of the template as it is shipped: its README, pages, configs, overlays and commands.

They are left out once the package has another name or an experiment is gone: then it is a team's project, whose own
tests are in tests/project/. Delete this folder when README.md and docs/ become yours.
"""

from tests.conftest import IS_WHOLE

collect_ignore_glob = [] if IS_WHOLE else ["test_*.py"]
