"""``fit``, ``validate``, ``test`` and ``predict`` as a process: imports, noise, errors, exit codes."""

import importlib
import logging
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable

from lightning.pytorch.utilities import rank_zero_info

from litlab.cli.experiment_cli import ExperimentCLI
from litlab.cli.user_message import user_message
from litlab.runs.config_diff import Finished
from litlab.runs.lock import is_first_process
from litlab.util.renamed import RenamedWarning, one_line
from litlab.util.team import package

SECONDS_FOR_FIRST_RANK = 2.0  # to fail by the same error: whoever has started the ranks then ends the others


def register_classes() -> None:
    """Import the team's package and the public classes of litlab, so that YAML finds them by short name."""
    for public in ("callbacks", "data", "optim", "tasks"):
        importlib.import_module(f"litlab.{public}")
    team = importlib.import_module(package())
    for module in pkgutil.walk_packages(team.__path__, f"{team.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def quiet() -> None:
    """Silence what Lightning tells every user at every start, and warnings that do not hold here."""
    tips = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    # The end of the last epoch is told before there are the metrics for its own line, which says "epoch 3/3".
    noise = ("litlogger", "configured with model summary callbacks", "stopped: `max_epochs=")
    tips.addFilter(lambda record: not any(text in record.getMessage() for text in noise))
    enums = logging.getLogger("torch.utils._pytree")  # torchao (0.18), at its import
    enums.addFilter(lambda record: "KernelPreference" not in record.getMessage())
    warnings.filterwarnings("ignore", message="OptimState8bit does not implement")  # torchao, when it compiles its step
    rates = "lightning.pytorch.callbacks.lr_monitor"  # torchao keeps learning rates in tensors
    warnings.filterwarnings("ignore", message="To copy construct from a tensor", module=rates)
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches come from memory
    warnings.filterwarnings("ignore", message=".*not supported by the model summary")  # it counts, it need not weigh
    warnings.filterwarnings("ignore", message="The dirpath has changed")  # every run has a folder of its own
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists")  # a resumed run's does
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)  # Lightning with torch's pytree
    warnings.formatwarning = one_line
    if not is_first_process():
        warnings.filterwarnings("ignore", category=RenamedWarning)


def run(cli: Callable[[], object] | None = None) -> int:
    """Run ``sys.argv``.

    Args:
        cli: Does it; `ExperimentCLI` where it is left out.

    Returns:
        0, also for a run that is finished already; 2 after one line that says what the user can put right; 130 after
        Ctrl-C. (A signal that stops a training ends the process with 143 or 130, after a checkpoint.)
    """
    try:
        (cli or ExperimentCLI)()
    except KeyboardInterrupt:
        return 130
    except Finished as finished:
        rank_zero_info(str(finished))
    except Exception as error:
        if not is_first_process():
            time.sleep(SECONDS_FOR_FIRST_RANK)
        message = user_message(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2
    return 0
