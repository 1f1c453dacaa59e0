"""Output that nobody can read: pipes without a reader, closed descriptors, full disks, vanished terminals."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import logging, os, sys
sys.path.insert(0, "src")
from litlab.cli.streams import survive_lost_readers
survive_lost_readers(sys.argv[1:])
logging.basicConfig(stream=sys.stderr)
for number in range(3):
    print("line", number)
    sys.stdout.flush()
    logging.error("logged %d", number)
    os.write(2, b"")
with open(os.devnull) as file:
    assert file.fileno() > 2, "a file in place of a standard stream"
subprocess_sees = os.system("echo child")
"""
BROKEN = "Standard output can't be written to (Broken pipe): the rest of it is dropped.\n"
FULL = "Standard output can't be written to (No space left on device): the rest of it is dropped.\n"
LOGGED = "".join(f"ERROR:root:logged {number}\n" for number in range(3))
# Arguments, where the shell sends the output; the exit code, and standard error where it is open.
CASES = [
    ("fit", "| true", 0, BROKEN + LOGGED),
    ("fit --trainer.max_epochs 1", "2>&1 | true", 0, None),
    ("fit", ">&-", 0, LOGGED),
    ("fit", "<&- >&- 2>&-", 0, None),
    ("fit", "2>&-", 0, None),
    ("fit", "> /dev/full", 0, FULL + LOGGED),
    ("fit", "> /dev/full 2>&1", 0, None),
    ("fit --help", "| true", 0, LOGGED),  # whoever asks has seen enough
    ("fit --print_config", "> /dev/full", 1, "error: standard output can't be written to: No space left on device.\n"),
    ("runs", "| true", 0, LOGGED),
    ("runs", "> /dev/full", 1, "error: standard output can't be written to: No space left on device.\n"),
]


@pytest.mark.parametrize(("arguments", "redirection", "code", "error"), CASES)
def test_output_that_is_lost(arguments, redirection, code, error):
    # The program begins when the reader has gone: `wait` for it would not tell, so the reader ends at once.
    script = f'sleep 0.1; exec "{sys.executable}" -S -c "$PROGRAM" {arguments}'
    shell = f"set -o pipefail; ( {script} ) {redirection}"
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, env={**os.environ, "PROGRAM": PROGRAM}, capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (code, error or "")


def test_a_terminal_that_is_closed():
    terminal, its_side = os.openpty()
    command = [sys.executable, "-S", "-c", f"input()\n{PROGRAM}", "fit"]
    gate, release = os.pipe()
    process = subprocess.Popen(command, cwd=ROOT, stdin=gate, stdout=its_side, stderr=its_side)
    os.close(its_side)
    os.close(terminal)
    os.write(release, b"\n")
    os.close(release)
    os.close(gate)
    assert process.wait(60) == 0


def test_what_can_be_read_is_unchanged():
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, "fit"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "line 0\nline 1\nline 2\nchild\n"
    assert done.stderr == LOGGED
