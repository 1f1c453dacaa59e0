"""A manifest that somebody has changed is refused by its key, before anything of it is used."""

import json

import pytest

from litlab.artifact import read_manifest
from litlab.artifact.manifest import FILES, MANIFEST, sha256
from litlab.errors import UserError

TENSOR = {"name": "x", "dtype": "float32", "shape": ["batch", 3], "what": "numbers"}
CHANGES = [{"files": {}}, {"files": 3}, {"files": {"../other": "0"}}, {"format": "pickle"}, {"version": "x"}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_manifest_that_names_other_files_is_refused(tmp_path, changes):
    (tmp_path / FILES["pt2"]).write_bytes(b"a graph")
    manifest = {
        "version": 1, "format": "pt2", "kind": "rows", "inputs": [TENSOR], "outputs": [TENSOR], "facts": {},
        "files": {FILES["pt2"]: sha256(tmp_path / FILES["pt2"])}, "versions": {}, "run": {"name": "a"}, "limits": {},
    }  # fmt: skip
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    assert read_manifest(tmp_path)["kind"] == "rows"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | changes))
    with pytest.raises(UserError, match=r"manifest\.json is damaged; export the run again"):
        read_manifest(tmp_path)
