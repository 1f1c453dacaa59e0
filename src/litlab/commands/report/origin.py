"""What a run cost, what it was made from, and how it is repeated."""

import shlex
from typing import Any

from litlab.commands.report.blocks import Block, Code, Details, Paragraph, Table
from litlab.commands.report.facts import Facts
from litlab.util import team

HIDDEN = ("host",)  # of the hardware: a report is for people who were not there
LABELS = {"memory_gib": "memory, GiB", "device_name": "name of the device"}


def cost(facts: Facts) -> list[Block]:
    """Return time, memory and speed of a run, as far as they are known."""
    hardware: dict[str, Any] = facts.made.get("hardware") or {}
    ranks = hardware.get("ranks") or 1
    device = hardware.get("device_name") or hardware.get("device")
    known = {
        "time": None if not facts.seconds else duration(facts.seconds),
        "device": None if device is None else f"{ranks} x {device}" if ranks > 1 else str(device),
        "peak memory, GiB": _number(facts.metrics.get("peak_memory_gib")),
        "samples per second (median epoch)": _number(facts.samples_per_second, ",.0f"),
        "epochs": _number(facts.metrics.get("epochs"), ","),
        "optimizer steps": _number(facts.metrics.get("steps"), ","),
    }
    rows = [[name, value] for name, value in known.items() if value is not None]
    return [Table(["", ""], rows)] if rows else []


def origin(facts: Facts) -> list[Block]:
    """Return code, data, seed, hardware and versions of a run."""
    made = facts.made
    if not made:
        return []
    data, hardware = made.get("data") or {}, made.get("hardware") or {}
    changes = made.get("uncommitted") or {}
    code = (made.get("commit") or "")[:12]
    if not code:
        code = f"not known ({made.get('why_no_commit', 'it was not under version control')})"
    if changes:
        part = "" if changes.get("complete", True) else ", which holds them only in part"
        code += f", with uncommitted changes ({changes.get('file')}{part})"
    known = {
        "started": made["started"].replace("T", " ") if made.get("started") else None,
        "commit": code,
        "seed": made.get("seed"),
        "data": data.get("class"),
        "fingerprint of the data": data.get("fingerprint"),
        **{LABELS.get(name, name): value for name, value in hardware.items() if name not in HIDDEN},
    }
    rows = [[name, str(value)] for name, value in known.items() if value is not None]
    found: list[Block] = [Table(["", ""], rows)]
    if later := made.get("continued"):
        sessions = [f"{session.get('started')} on commit {session.get('commit')}" for session in later]
        times = "once" if len(later) == 1 else f"{len(later)} times"
        found.append(Paragraph(f"The run was continued {times}: {'; '.join(sessions)}."))
    if versions := made.get("versions"):
        table = Table(["package", "version"], [[name, str(version)] for name, version in versions.items()])
        found.append(Details(f"Versions of {len(versions)} packages", [table]))
    return found


def reproduction(facts: Facts) -> list[Block]:
    """Return the commands that repeat a run."""
    made = facts.made
    if not made.get("command"):
        return []
    steps = []
    if commit := made.get("commit"):
        steps.append(["git", "checkout", str(commit)])
    if changes := made.get("uncommitted"):
        steps.append(["git", "apply", str(facts.run.path / str(changes.get("file")))])
    steps.append(made["command"])
    by_hand = "\n".join(shlex.join(step) for step in steps)
    found: list[Block] = [
        Paragraph("In a clone of the repository that has the run's folder:"),
        Code(shlex.join(team.command("reproduce", str(facts.run.path)))),
        Paragraph("The same by hand, with the versions above:"),
        Code(by_hand),
    ]
    if (made.get("uncommitted") or {}).get("complete") is False:
        found.append(
            Paragraph("The uncommitted changes were kept only in part, so the code can't be restored from them.")
        )
    return found


def duration(seconds: float) -> str:
    """Return a time for people: seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _number(value: float | None, form: str = ".3g") -> str | None:
    return None if value is None else format(value, form)
