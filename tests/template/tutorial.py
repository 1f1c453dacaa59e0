"""Does what a tutorial says: writes its files, runs its commands, looks for what they print; not a test itself.

In a tutorial, a block of Python or YAML is a file, which the line before it names; a block of bash holds commands; and
a block of text is what they print, or some lines of it.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.conftest import PACKAGE, ROOT, Outcome
from tests.processes import Python, start_pytest

TUTORIALS = ROOT / "docs/tutorials"
FILE = r"`([\w./]+\.(?:py|yaml))`[^`\n]*:\n\n(?=```(?:python|yaml))"
BLOCK = re.compile(rf"(?:{FILE})?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")

Verb = Callable[[list[str]], Outcome]  # a command of the project, by what follows `python -m PACKAGE`


class Block(NamedTuple):
    """A block of a page."""

    file: str  # that it is written to; empty for commands, and for what they print
    kind: str
    text: str

    def commands(self) -> list[str]:
        """The commands, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.split("  #")[0].strip() for line in lines if line.strip()]


def blocks(page: str) -> list[Block]:
    """The blocks of a tutorial, in order."""
    found = [Block(*parts) for parts in BLOCK.findall((TUTORIALS / page).read_text())]
    for block in found:
        assert bool(block.file) == (block.kind not in ("bash", "text")), f"{page}: {block.text}"
    return found


def follow(page: str, verb: Verb, others: dict[str, Callable[[str], Outcome]]) -> None:
    """Do what a tutorial says, in the working directory.

    Args:
        page: Its name.
        verb: Runs a command of the project.
        others: Run further commands, by how these begin.
    """
    printed = ""
    for block in blocks(page):
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.kind == "bash":
            printed = ""
            for command in block.commands():
                done = _run(command, verb, others)
                refused = re.search("^error: ", done.err, re.MULTILINE) is not None
                assert done.code == 2 * refused, f"{command}\n{done.out}\n{done.err}"
                printed += done.out + done.err
            assert "error: " not in printed or "error: " in _text_after(page, block), f"{block.text}\n{printed}"
        else:
            _check_printed(block.text, printed)


def _run(command: str, verb: Verb, others: dict[str, Callable[[str], Outcome]]) -> Outcome:
    words = shlex.split(command)
    for start, run in others.items():
        if command.startswith(start):
            return run(command)
    if words[:3] == ["python", "-m", PACKAGE]:
        return verb(words[3:])
    if words[:3] == ["python", "-m", "pytest"]:
        return run_tests(words[3:])
    assert words[0] == "python", command
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
    return Outcome(done.returncode, done.stdout, done.stderr)


def _text_after(page: str, block: Block) -> str:
    """What a page shows as printed by some commands."""
    all_blocks = blocks(page)
    following = all_blocks[all_blocks.index(block) + 1 :]
    return following[0].text if following and following[0].kind == "text" else ""


def _check_printed(shown: str, printed: str) -> None:
    """All words of a line were printed, and an error as it stands; numbers depend on machine and length of the run."""
    for line in shown.splitlines():
        if line.startswith("error: "):
            assert line in printed, printed
        missing = set(_words(line)) - set(_words(printed))
        assert not missing, f"not printed: {missing}\n{printed}"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", text)


# Pages that change the project are followed in a copy of it, which only new processes import.


def copy_project(folder: Path) -> None:
    """Copy what an experiment is written into, and what it is tested with."""
    for name in (f"src/{PACKAGE}", "configs", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_in_copy(arguments: list[str]) -> Outcome:
    """Run a command of the copy that is the working directory."""
    return _end(Python("-m", PACKAGE, *arguments, cwd=Path.cwd(), environment={"PYTHONPATH": Path("src").absolute()}))


def run_tests(arguments: list[str]) -> Outcome:
    """Run tests of the copy that is the working directory."""
    return _end(start_pytest(Path.cwd(), *arguments))


def _end(process: Python) -> Outcome:
    out, err = process.communicate()
    return Outcome(process.wait(), out, err)
