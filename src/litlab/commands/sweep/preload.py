"""What the fork server of `litlab.commands.sweep.processes` imports, so that fits need not.

It changes the process: for the server only.
"""

import contextlib
import os
import signal

import litlab.cli.fit  # noqa: F401
from litlab.cli.quiet import silence_noise
from litlab.cli.resolve import import_all_classes
from litlab.commands.sweep.variables import PACKAGE
from litlab.util.team import use_package

os.setsid()  # signals from the terminal are for the command, which stops the fits in order
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as SLURM sends it to all processes at once
use_package(os.environ[PACKAGE])
silence_noise()
with contextlib.suppress(Exception):  # a fit, or the check before the first one, reports what is wrong
    import_all_classes()
