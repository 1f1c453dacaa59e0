"""Environment variables, and what git knows of the code."""

from collections.abc import Iterator

from litlab.cli.environment import check_variables
from litlab.doctor.line import ENVIRONMENT, FAILED, OK, WARNING, Line
from litlab.errors import UserError
from litlab.runs.git import work_tree


def environment() -> Iterator[Line]:
    """Look at the variables that launchers set, and at the work tree."""
    yield variables()
    yield code()


def variables() -> Line:
    """Check the variables that give a process its place among others."""
    try:
        check_variables()
    except UserError as error:
        what, _, remedy = str(error).removeprefix("environment: ").partition("; ")
        return Line(ENVIRONMENT, "variables", FAILED, what, remedy)
    return Line(ENVIRONMENT, "variables", OK, "none that stops a run")


def code() -> Line:
    """Describe the work tree as the provenance of a run does."""
    tree = work_tree()
    facts = {"commit": tree.commit, "dirty": tree.dirty, "root": None if tree.root is None else str(tree.root)}
    if tree.commit is None:
        if "dubious ownership" in tree.problem:
            remedy = "git config --global --add safe.directory FOLDER, if you trust who owns it"
        elif "can't be run" in tree.problem:
            remedy = "install git"
        else:
            remedy = "git init, git add . and git commit: runs then record the code that they were made from"
        return Line(ENVIRONMENT, "code", WARNING, f"its commit is not known: {tree.problem}", remedy, facts)
    what = f"commit {tree.commit[:7]}{' with uncommitted changes' if tree.dirty else ''}, recorded by each run"
    return Line(ENVIRONMENT, "code", OK, what, facts=facts)
