"""Two commands at once on a PostgreSQL server that the test starts."""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.litlab.commands.sweep.test_sweep import check_complete

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not PROGRAMS, reason="needs PostgreSQL: apt-get install postgresql"),
    pytest.mark.skipif(IS_ROOT and not shutil.which("setpriv"), reason="root can't run PostgreSQL without setpriv"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
        if IS_ROOT:
            shutil.chown(name, "postgres")
        yield Path(name)


@pytest.fixture
def address(folder) -> Iterator[str]:
    """The address of a fresh server on loopback."""
    programs = PROGRAMS[-1].parent
    as_server = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if IS_ROOT else []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command: object) -> None:
        subprocess.run([*as_server, *map(str, command)], check=True, capture_output=True, timeout=60, cwd=folder)

    data = folder / "data"
    run(programs / "initdb", "--pgdata", data, "--username=sweeper", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
    run(programs / "pg_ctl", "--pgdata", data, "--wait", "--log", folder / "log", "--options", options, "start")
    yield f"postgresql://sweeper:{uuid.uuid4().hex}@127.0.0.1:{port}/postgres"
    run(programs / "pg_ctl", "--pgdata", data, "--mode=immediate", "stop")


def test_two_commands_at_once(sweep, address):
    """Together exactly the budget, each trial once; the password is written nowhere."""
    sweep.write(trials=3)
    sweep.environment["LITLAB_SWEEP_STORAGE"] = address
    commands = [sweep.start(), sweep.start()]
    outcomes = [sweep.end(command) for command in commands]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    trials = check_complete(sweep, 3, address.replace("postgresql:", "postgresql+psycopg:"))
    assert len({trial.user_attrs["process"]["pid"] for trial in trials}) == 2
    assert not (sweep.kept / "study.db").exists()
    password = address.split(":")[2].split("@")[0]
    assert not any(password in outcome.out + outcome.err for outcome in outcomes)
    files = [path for path in sweep.folder.rglob("*") if path.is_file()]
    assert not any(password.encode() in path.read_bytes() for path in files)
