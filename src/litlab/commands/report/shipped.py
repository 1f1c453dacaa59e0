"""The config that a run was started with, as it stands in the repository: what it says of itself, what differs."""

import re
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from pathlib import Path
from typing import Any

from litlab.cli.argv import find_bases, flags_of, is_of_run
from litlab.commands.report.facts import Facts
from litlab.errors import UserError
from litlab.runs.masking import mask, mask_text
from litlab.runs.settings import flatten, format_value
from litlab.util.yaml import read_mapping, read_text


@dataclass(frozen=True)
class Shipped:
    """A config file of the repository.

    Args:
        name: Its path, as it was typed.
        comment: The comment that it begins with.
        settings: What it sets, those that it builds on included, by dotted key.
        named: The keys that the command of the run set besides, by overlays and flags.
    """

    name: str
    comment: str
    settings: dict[str, Any]
    named: list[str]

    @property
    def first_sentence(self) -> str:
        """The first sentence of the comment, which may be broken into lines."""
        lines = takewhile(lambda line: line and not line.startswith(" "), self.comment.splitlines())
        text = " ".join(lines)
        found = re.match(r".*?[.!?](?=\s|$)", text)
        return found[0] if found else text


def shipped_config(facts: Facts) -> Shipped | None:
    """Find the config that a run was started with; None if it is not there any more.

    That is the first ``--config`` of its command or, where that is the config of another run, ``configs/NAME.yaml`` of
    its experiment.
    """
    given = flags_of(facts.made.get("command") or [])
    configs = [value for flag, value in given if flag in ("--config", "-c") and value.endswith((".yaml", ".yml"))]
    named = [_key(flag) for flag, _ in given if flag.startswith("--") and flag != "--config"]
    folders = [Path(facts.made.get("directory") or "."), Path()]
    own = [f"configs/{facts.config.get('experiment')}.yaml"]
    try:
        for name in configs[:1] + own:
            file = next((found for folder in folders if _is_config(found := folder / name)), None)
            if file is None:
                continue
            for overlay in configs[1:]:
                path = next((found for folder in folders if _is_config(found := folder / overlay)), None)
                named += list(_settings(path)) if path is not None else []
            return Shipped(name, mask_text(_comment(read_text(file))), _settings(file), named)
    except UserError:  # it is no longer a config, and so not that of the run
        return None
    return None


def differences(facts: Facts, shipped: Shipped) -> list[list[str]]:
    """Return setting, shipped value and value of the run, where they differ or an overlay or a flag has set it."""
    here = facts.settings
    rows = []
    for key in dict.fromkeys([*shipped.settings, *here]):
        known, value = key in shipped.settings, here.get(key)
        was = shipped.settings.get(key)
        if (known and value != was) or (not known and _was_set(key, shipped, here)):
            rows.append([key, format_value(was) if known else "default", format_value(value)])
    return rows


def _was_set(key: str, shipped: Shipped, here: dict[str, Any]) -> bool:
    """Return whether the command set a key, or a block around it that the shipped config has nothing of."""
    parts = key.split(".")
    around = [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    inside = next((name for name in around if name in shipped.named or name in shipped.settings), None)
    return key in shipped.named or (inside in shipped.named and inside not in here)


def _is_config(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") and path.is_file() and not is_of_run(path)


def _settings(file: Path) -> dict[str, Any]:
    """Return what a config sets by dotted key, secrets masked, without sections that are empty."""
    configs = [read_mapping(path) for path in (*find_bases(file), file)]
    merged = reduce(_merged, configs)
    return {key: value for key, value in flatten(mask(merged)).items() if key != "base" and value != {}}


def _merged(before: Any, over: Any) -> Any:
    if not (isinstance(before, dict) and isinstance(over, dict)):
        return over
    return {**before, **{key: _merged(before.get(key), value) for key, value in over.items()}}


def _comment(text: str) -> str:
    lines = []
    for line in text.lstrip().splitlines():
        if not line.startswith("#"):
            break
        if "yaml-language-server" not in line:  # which is for editors
            lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines).strip()


def _key(flag: str) -> str:
    """Return the dotted key of a flag: ``model.width`` of ``--model.init_args.width``."""
    return flag.removeprefix("--").removesuffix("+").replace(".init_args", "").removesuffix(".class_path")
