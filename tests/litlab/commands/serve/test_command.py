"""What the command refuses, in one line and before anything slow."""

import json
import socket
import subprocess
import sys

import pytest

from litlab.artifact.manifest import FILES, MANIFEST, sha256
from tests.processes import Python


def folder(path, **other: object):
    """The folder of an export without a graph."""
    path.mkdir(exist_ok=True)
    tensor = {"name": "ids", "dtype": "int64", "shape": ["batch", "time"], "what": "ids"}
    manifest = {"version": 1, "format": "pt2", "kind": "texts", "inputs": [tensor], "outputs": [tensor], "facts": {}}
    manifest |= {"versions": {}, "run": {"name": "texts/version_0"}, "limits": {}, **other}
    file = path / FILES[manifest["format"]]
    if "files" not in other:
        file.write_bytes(b"nothing")
        manifest["files"] = {file.name: sha256(file)}
    (path / MANIFEST).write_text(json.dumps(manifest))
    return path


def refused(run, *arguments: object) -> str:
    done = run("serve", *arguments)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    return line


def test_wrong_arguments(run, tmp_path, monkeypatch):
    assert refused(run, "--run", "nothing").startswith("error: nothing: there is no such run")
    assert refused(run).endswith("the following arguments are required: --run")
    assert "'-1' is not valid" in refused(run, "--run", "x", "--workers", -1)
    assert "must be a whole number from 0 to 65535" in refused(run, "--run", "x", "--port", 70_000)
    assert "'nan' is not a number of seconds above 0" in refused(run, "--run", "x", "--timeout", "nan")
    for token in ("", "two words", "gr\u00fcn"):
        monkeypatch.setenv("LITLAB_SERVE_TOKEN", token)
        assert refused(run, "--run", "x").startswith("error: LITLAB_SERVE_TOKEN: it is empty, or has")
    monkeypatch.delenv("LITLAB_SERVE_TOKEN", raising=False)  # the command has taken it
    line = refused(run, "--run", folder(tmp_path / "export"), "--host", "no.such.host.invalid", "--port", 0)
    assert line == "error: --host: no.such.host.invalid is no address of this machine; leave it out"


def test_a_port_in_use(run, tmp_path):
    folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(run, "--run", tmp_path, "--port", port)
        assert line == f"error: --port: {port} is in use; choose another one, or 0 for a free one"


def test_an_export_that_cannot_be_served(run, tmp_path):
    assert "it has no valid 'facts'" in refused(run, "--run", folder(tmp_path, facts=1))
    assert "it is missing; copy the whole folder" in refused(
        run, "--run", folder(tmp_path / "cut", files={"model.pt2": "0"})
    )
    line = refused(run, "--run", folder(tmp_path), "--prot", 1)
    assert line == f"error: serve: --prot is a setting of a run, and {tmp_path} is an exported model; leave it out"


def test_what_a_worker_cannot_load(tmp_path):
    """What it says is what the command says."""
    run = folder(tmp_path, format="torchscript")
    process = Python("-m", "auks", "serve", "--run", run, "--port", 0, cwd=tmp_path)
    out, err = process.communicate(120)
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'model.ts'}: it can't be loaded here (")
    assert "Traceback" not in err


def test_missing_packages(run, monkeypatch):
    monkeypatch.setattr("litlab.commands.serve.serve.find_spec", lambda name: None)
    line = refused(run, "--run", "x")
    assert line.endswith("python_multipart is not installed; pip install '.[serve]'")


@pytest.mark.parametrize("arguments", [["--help"], ["--run", "nothing"]])
def test_nothing_slow_is_imported_by_the_process_that_listens(arguments):
    code = (
        "import sys\n"
        "from litlab.cli.main import run_command\n"
        f"sys.argv = ['x', 'serve', *{arguments}]\n"
        "try:\n    run_command('auks')\n"
        "finally:\n    assert not {'torch', 'lightning', 'PIL'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Assertion" not in done.stderr, done.stderr
