"""``python -m litlab.commands.doctor.child PACKAGE MODULE FUNCTION``: one check, in a process of its own.

Lines go to stdout as JSON, one each; whatever else is printed goes to stderr.
"""

import gc
import json
import os
import sys
import traceback
from dataclasses import asdict
from importlib import import_module

from litlab.commands.doctor.line import described
from litlab.util.team import use_package


def main(package: str, module: str, function: str) -> int:
    """Run a check.

    Args:
        package: Import name of the team's package.
        module: Where the check is.
        function: Its name. It yields lines.

    Returns:
        0, or 1 where the check raised.
    """
    gc.disable()  # a fifth of the time of imports; this process ends soon
    use_package(package)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        try:
            for line in getattr(import_module(module), function)():
                print(json.dumps(asdict(line)), file=answers, flush=True)
        except Exception as error:
            traceback.print_exc()
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            print(json.dumps({"error": described(error), "missing": missing}), file=answers)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
