"""``python -m PACKAGE reproduce``: the commands that repeat a run from the same code and settings."""

import shlex
from pathlib import Path

from litlab.errors import UserError
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.folder import ROOT, get_entry, read_json
from litlab.runs.provenance import versions
from litlab.util import team
from litlab.util.options import Options, answer

DESCRIPTION = """\
Print the commands that repeat a run in a new run folder: with its config.yaml, on the commit and the
uncommitted changes that it ran with. Packages whose versions differ are listed.

  %(prog)s mine/version_3
"""


def main(arguments: list[str]) -> int:
    return answer(_reproduce, arguments)


def _reproduce(arguments: list[str]) -> int:
    options = Options("reproduce", DESCRIPTION)
    options.add_argument("run", metavar="RUN", help=RUN_HELP)
    options.add_argument("--print", action="store_true", help="print the commands: what it does anyway")
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)

    run = find_run(chosen.run, chosen.root)
    origin = read_json(run.provenance)
    commit = get_entry(origin, str, "commit")
    if commit is None:
        reason = get_entry(origin, str, "why_no_commit") or "it has no provenance.json"
        raise UserError(f"{run.name}: the commit of its code is not known ({reason}); repeat it by hand")
    if any(get_entry(later, str, "commit") != commit for later in origin.get("continued", [])):
        print(f"# {run.name} was continued on other code than that of {commit[:7]}, where it began")
    here = versions()
    for name, version in (get_entry(origin, dict, "versions") or {}).items():
        if here.get(name) != version:
            print(f"# {name} is {here.get(name, 'not installed')} here, and the run used {version}")

    print(shlex.join(["git", "checkout", commit]))
    diff = get_entry(origin, str, "uncommitted", "file")
    if diff:
        print(shlex.join(["git", "apply", str((run.path / diff).absolute())]))
    print(shlex.join(team.command("fit", "--config", str(run.config))))
    return 0
