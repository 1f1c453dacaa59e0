"""Which runs the arguments of ``report`` stand for, and where the report on them goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litlab.runs.find import all_runs, find_run
from litlab.runs.folder import ROOT, RunFolder

LONGEST = 120  # letters of a file name


@dataclass(frozen=True)
class Chosen:
    """Some runs.

    Args:
        title: What they are called together.
        runs: The runs, each once.
        page: Where a report on them goes, if nobody says otherwise.
    """

    title: str
    runs: list[RunFolder]
    page: Path


def chosen_runs(texts: Sequence[str]) -> Chosen:
    """Find the runs that the user named.

    Args:
        texts: Each a run as `find_run` takes it, or the folder of a group of seeds, which stands for all of its runs.

    Raises:
        UserError: If there is no such run.
    """
    found: dict[Path, RunFolder] = {}
    names: list[str] = []
    for text in texts:
        run = find_run(text, groups=True)
        members = {member.path.parent: member for member in reversed(all_runs(run.path))}
        runs = sorted(members.values(), key=lambda member: member.name) if run.is_group() else [run]
        names.append(run.name)
        found |= {run.path.resolve(): run for run in runs}
    every, names = list(found.values()), list(dict.fromkeys(names))
    if len(every) == 1:
        return Chosen(every[0].name, every, every[0].path / "report" / "index.html")
    title = names[0] if len(names) == 1 else f"{len(every)} runs"
    file = "_".join(name.replace("/", "-") for name in names)
    if len(file) > LONGEST:
        file = f"{names[0].replace('/', '-')}_and_{len(names) - 1}_more"
    return Chosen(title, every, ROOT / "reports" / f"{file}.html")
