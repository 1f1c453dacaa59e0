"""What git knows of the code."""

from collections.abc import Iterator

from litlab.commands.doctor.line import ENVIRONMENT, OK, WARNING, Line
from litlab.runs.provenance import work_tree


def environment() -> Iterator[Line]:
    """Look at the work tree."""
    yield code()


def code() -> Line:
    """Describe the work tree as the provenance of a run does."""
    tree = work_tree()
    facts = {"commit": tree.commit, "dirty": bool(tree.diff)}
    if tree.commit is None:
        if "dubious ownership" in tree.problem:
            remedy = "git config --global --add safe.directory FOLDER, if you trust who owns it"
        elif "can't be run" in tree.problem:
            remedy = "install git"
        else:
            remedy = "git init, git add . and git commit: runs then record the code that they were made from"
        return Line(ENVIRONMENT, "code", WARNING, f"its commit is not known: {tree.problem}", remedy, facts)
    what = f"commit {tree.commit[:7]}{' with uncommitted changes' if tree.diff else ''}, recorded by each run"
    return Line(ENVIRONMENT, "code", OK, what, facts=facts)
