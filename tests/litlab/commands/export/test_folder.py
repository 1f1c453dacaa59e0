"""The files of an export: a script that must work."""

import numpy as np
import pytest

from litlab.commands.export.folder import write_folder
from litlab.errors import UserError
from tests.litlab.commands.export.test_graph import Rows


def test_a_script_that_fails_in_a_process_of_its_own_is_refused(tmp_path):
    """Here the graph is missing."""
    manifest = {"format": "onnx", "versions": {}}
    with pytest.raises(UserError, match=r"^export: use\.py fails without this project \(.*model\.onnx"):
        write_folder(tmp_path, Rows(), lambda arrays: [np.ones((2, 1))], manifest)
