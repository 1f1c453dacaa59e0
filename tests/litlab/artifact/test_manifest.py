"""A manifest that somebody has changed is refused by its key, before anything of it is used."""

import json

import pytest

from litlab.artifact import read_manifest
from litlab.artifact.manifest import FILES, MANIFEST, sha256
from litlab.errors import UserError

TENSOR = {"name": "x", "dtype": "float32", "shape": ["batch", 3], "what": "numbers"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / FILES["pt2"]).write_bytes(b"a graph")
    manifest = {
        "version": 1, "format": "pt2", "kind": "rows", "inputs": [TENSOR], "outputs": [TENSOR], "facts": {},
        "files": {FILES["pt2"]: sha256(tmp_path / FILES["pt2"])}, "versions": {}, "run": {"name": "a"}, "limits": {},
    }  # fmt: skip
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    return tmp_path


def change(folder, **entries):
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {}},
        {"files": 3},
        {"files": {"../other": "0"}},
        {"format": "pickle"},
        {"format": None},
        {"version": "x"},
    ],
)
def test_a_manifest_that_names_other_files_is_refused(folder, changes):
    assert read_manifest(folder)["kind"] == "rows"
    change(folder, **changes)
    with pytest.raises(UserError, match=r"manifest\.json is damaged; export the run again"):
        read_manifest(folder)
