"""``python -m PACKAGE reproduce``: the commands that repeat a run from the same code and
settings.
"""

import re
import shlex
from pathlib import Path

from litlab.errors import UserError, printable
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.folder import read_record
from litlab.runs.provenance import list_versions
from litlab.util import team
from litlab.util.options import Options

DESCRIPTION = """\
Print the commands that repeat a run in a new run folder: with its config.yaml, on the commit and
the uncommitted changes that it ran with. Packages whose versions differ are listed.

  %(prog)s mine/version_3
"""


def main(arguments: list[str]) -> int:
    options = Options("reproduce", DESCRIPTION)
    options.add_argument("run", metavar="RUN", help=RUN_HELP)
    run = find_run(options.parse_args(arguments).run)
    origin = read_record(run.provenance)
    # It goes into a command that is typed as it stands: nothing but a commit may be there
    commit = origin.get("commit") or ""
    if not re.fullmatch("[0-9a-f]+", commit):
        raise UserError(
            f"{run.name}: it is not known from which commit it was made; repeat it by hand"
        )
    # What can't be repeated by these commands is said in front of them
    for other in {later["commit"] for later in origin.get("continued", [])} - {commit}:
        print(printable(f"# it was continued on commit {other}"))
    # Versions matter most: the same code gives other numbers with another torch
    here = list_versions()
    for name, version in origin.get("versions", {}).items():
        if here.get(name) != version:
            print(
                printable(
                    f"# {name} is {here.get(name, 'not installed')} here, the run used {version}"
                )
            )

    # The commands: the commit, what was not committed then, the config
    print("git checkout", commit)
    if origin.get("uncommitted"):
        diff = run.path.absolute() / Path(origin["uncommitted"]["file"]).name
        print(printable(shlex.join(["git", "apply", str(diff)])))
    print(team.typed("fit", "--config", str(run.config)))
    return 0
