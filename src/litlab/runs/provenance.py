"""What a run was made from: command, code, versions, hardware, seed and data, with secrets kept
out.
"""

import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab import __version__
from litlab.util import team

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# New files that belong to the code: their content is kept
SOURCES = ("*.py", "*.yaml", "*.yml", "*.toml")
# Whatever the user has set otherwise, the same changes must give the same text later.
DIFF = (
    "diff --no-ext-diff --no-textconv --no-color --no-renames --src-prefix=a/ --dst-prefix=b/ "
    "--full-index HEAD"
)
PACKAGES = (
    "torch torchvision lightning torchmetrics jsonargparse numpy pandas scikit-learn optuna torchao"
)


def describe_origin(trainer: "Trainer") -> tuple[dict[str, Any], str]:
    """Describe what a run is made from; secrets in the command are masked.

    Args:
        trainer: The trainer of the run, its data set up.

    Returns:
        The content of ``provenance.json``, and the uncommitted changes as they are, empty if there
        are none. The name of their file is that of their content.
    """
    commit, diff = work_tree()
    data: Any = getattr(trainer, "datamodule", None)
    digest = hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest()
    seed = os.environ.get("PL_GLOBAL_SEED")  # where Lightning's seed_everything leaves it
    origin = {
        "started": now(),
        "command": command(),
        "commit": commit,
        "dirty": bool(diff),
        "uncommitted": {"file": f"uncommitted_{digest[:8]}.diff"} if diff else None,
        "versions": versions(),
        "hardware": hardware(trainer),
        "seed": None if seed is None else int(seed),
        "data": {
            "class": type(data).__name__,
            "description": str(getattr(data, "description", "")),
            "fingerprint": str(getattr(data, "fingerprint", "")),
            "generated": bool(getattr(data, "generated", False)),
        },
    }
    return mask(origin), diff


def command() -> list[str]:
    """Return the command line as it can be typed again, secrets masked."""
    return team.command(*mask_command(sys.argv[1:]))


def now() -> str:
    """Return the time, with its offset to UTC, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of Python, the team's package, and the packages that decide what a run
    does.
    """
    known = {"python": platform.python_version(), "litlab": __version__}
    for name in (team.package(), *PACKAGES.split()):
        with suppress(metadata.PackageNotFoundError):
            known[name] = metadata.version(name)
    return known


def hardware(trainer: "Trainer") -> dict[str, Any]:
    """Describe the machine, and how much of it the run uses."""
    import torch

    device = trainer.strategy.root_device
    cpus = Path("/proc/cpuinfo")  # of Linux
    model = (
        re.search(r"model name\s*: (.*)", cpus.read_text(encoding="utf-8"))
        if cpus.exists()
        else None
    )
    return {
        "host": socket.gethostname(),
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "ranks": trainer.world_size,
        "strategy": type(trainer.strategy).__name__,
        "precision": str(trainer.precision),
    }


# The code


class GitError(Exception):
    """What git refused, in one line."""


def work_tree(package: Path | None = None) -> tuple[str | None, str]:
    """Describe the repository that the running code is in.

    Args:
        package: A folder of the code. Left out, the team's package, wherever the command was typed.

    Returns:
        The commit that is checked out, None where the code is in no repository; and what differs
        from it, new source files included, as ``git apply`` takes it.
    """
    package = package or team.package_folder()
    try:
        if not git("ls-files", "--", ".", at=package):
            return None, ""
        root = Path(git("rev-parse", "--show-toplevel", at=package).strip())
        return git("rev-parse", "--verify", "HEAD", at=root).strip(), _diff(root)
    except GitError:
        return None, ""


def git(*arguments: str, at: Path, **environment: str) -> str:
    """Run git in a folder, and return what it prints.

    Args:
        arguments: Arguments of git.
        at: The folder.
        environment: Further environment variables.

    Raises:
        GitError: If it can't be run or fails.
    """
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **environment}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=at, env=environment, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        message = (
            getattr(error, "stderr", b"").decode(errors="replace") or f"git can't be run: {error}"
        )
        raise GitError(message.splitlines()[0].removeprefix("fatal: ")) from error
    return done.stdout.decode(errors="surrogateescape")


def _diff(root: Path) -> str:
    """Return the difference to HEAD, new source files included, without touching the repository's
    own index.
    """
    sources = git(
        "ls-files", "--others", "--exclude-standard", "-z", "--", *SOURCES, at=root
    ).split("\0")[:-1]
    with tempfile.TemporaryDirectory() as folder:
        # With its time, by which git knows which files it has to look into.
        index = shutil.copy2(
            root / git("rev-parse", "--git-path", "index", at=root).strip(), folder
        )
        git("add", "--intent-to-add", "--", *sources, at=root, GIT_INDEX_FILE=index)
        return git(*DIFF.split(), at=root, GIT_INDEX_FILE=index)


MASK = "***"
# The name of a setting whose value is a secret: `hf_token`, `api_key`, `db.password`; not
# `pad_token` or `max_tokens`.
NAME = (
    r"(?!(?:[\w.-]*[_.-])?(?:pad|mask|unk|eos|bos|sep|cls|start|end|stop|special|class|image|blank)_token\b)"
    r"(?:[\w.-]*[_.-])?(?:token|password|passwd|passphrase|secrets?|credentials?|(?:api|access|secret|private|auth)_?key)"
)
# `password: x`, `token=x`, `"api_key": "x"`; what is clearly not a secret (a number, null, true, a
# mask) stays.
SETTING = re.compile(
    rf"(?<![\w.-])((?:--?)?[\"']?{NAME}[\"']?\s*[:=][ \t]*)"
    r"(?!(?:null|none|true|false|~|[\d.+-]+|\*\*\*)[\"']?\s*(?:[,})\]#]|$))"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"'{}\[\]()]+)",
    re.IGNORECASE | re.MULTILINE,
)
# Keys of well-known services and passwords in addresses, wherever they stand.
KEY = re.compile(
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|AIza)[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"
    r"|(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)|(?<=\bBearer )[\w.~+/=-]{8,}"
    r"|(?<=\bBasic )[\w.~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END|\Z)"
)


def mask(value: Any, name: str = "") -> Any:
    """Replace secrets in plain data: values under a name of a secret, and those inside of texts."""
    if isinstance(value, dict):
        return {key: mask(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, name) for item in value]
    if isinstance(value, str):
        return MASK if re.fullmatch(NAME, name, re.IGNORECASE) else mask_text(value)
    return value


def mask_text(text: str) -> str:
    """Replace secrets in settings as they stand in a command line or a message, and those of
    environment variables.
    """
    for name, value in os.environ.items():
        if len(value) > 7 and value in text and re.fullmatch(NAME, name, re.IGNORECASE):
            text = text.replace(value, MASK)
    return SETTING.sub(rf"\1{MASK}", KEY.sub(MASK, text))


def mask_command(words: Sequence[str]) -> list[str]:
    """Replace secrets in a command line, whether given as ``--token=x`` or ``--token x``."""
    pairs = pairwise(["", *words])
    return [mask(word, "" if word.startswith("--") else before) for before, word in pairs]
