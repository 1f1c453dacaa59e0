"""A manifest that somebody has changed is refused by its key, before anything of it is used."""

import json

import pytest

from litlab.artifact import read_manifest
from litlab.artifact.manifest import FILES, MANIFEST, others_in, sha256
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


WRONG = [
    ("inputs", []), ("inputs", [1]), ("inputs", [{}]), ("outputs", [{**TENSOR, "shape": [1.5]}]),
    ("inputs", [{**TENSOR, "name": None}]), ("run", {}), ("run", {"name": 3}), ("run", []), ("limits", []),
    ("files", {}), ("files", {"../other": "0"}), ("files", {"/etc/passwd": "0"}), ("format", "pickle"), ("facts", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_entries_of_another_kind(folder, key, value):
    assert read_manifest(folder)["kind"] == "rows"
    change(folder, **{key: value})
    with pytest.raises(UserError, match=rf"manifest.json is damaged \(it has no valid '{key}'\); export the run again"):
        read_manifest(folder)


def test_what_no_export_has_written(folder, tmp_path):
    assert others_in(folder) == []
    (folder / "notes.txt").write_text("mine")
    assert others_in(folder) == ["notes.txt"]
    (folder / MANIFEST).write_text('{"files": 1}')
    assert others_in(folder) == [MANIFEST, FILES["pt2"], "notes.txt"]
