"""Configs written by other versions of the code, which name classes that have been moved or removed."""

import importlib.util
from typing import Any

from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json, read_or_note
from litlab.util.class_blocks import class_blocks
from litlab.util.team import is_own


def check_classes(run: RunFolder | None, what: str, config: dict[str, Any]) -> None:
    """Refuse a config whose classes no longer exist; the parser would refuse it without saying why.

    Args:
        run: The run that it belongs to; None for a checkpoint outside of runs.
        what: The run or checkpoint, for the message.
        config: Its config.

    Raises:
        UserError: For the first class of the team's package or of litlab that is missing. It names the version and
            commit that wrote the run.
    """
    gone = next((path for _, path, _ in class_blocks(config) if is_own(path) and not _is_there(path)), None)
    if gone is None:
        return
    version, advice = "another version of the code", "check that version out to use it"
    made = read_or_note([], read_json, run.provenance) if run is not None else {}
    if commit := made.get("commit"):
        versions = made.get("versions") or {}
        number = next((versions[name] for name in versions if is_own(name)), "")
        version = f"version {number} of the code" if number else version
        advice = f"git checkout {commit[:10]} to use it"
    raise UserError(f"{what} was written by {version}: it names {gone}, which no longer exists; {advice}.")


def _is_there(path: str) -> bool:
    module, _, name = path.rpartition(".")
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        found = False
    return found and hasattr(importlib.import_module(module), name)
