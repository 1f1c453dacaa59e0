"""What ``validate``, ``test`` and ``predict`` do, in the order in which it happens."""

import sys
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.utilities import rank_zero_info

from litlab.cli.config import Command
from litlab.cli.fit import build_experiment, build_trainer
from litlab.cli.trainer import has_callback, print_summary
from litlab.errors import UserError
from litlab.runs.failures import saving_traceback
from litlab.runs.run import Run
from litlab.util.files import check_replaceable, record_digests


def evaluate(argv: list[str]) -> int:
    """Validate or test a checkpoint; the results go into its run."""
    command = Command(argv)
    sys.argv[1:] = command.line.pinned  # other processes parse it again: a folder, not "last"
    experiment = build_experiment(command)

    with Run.join(command) as run:
        trainer = build_trainer(experiment, run)
        # Not verbose: the summary at the end shows the metrics, with what else is known of the run
        run_verb = trainer.validate if command.verb == "validate" else trainer.test
        run_verb(
            experiment.model,
            experiment.data,
            ckpt_path=command.config.ckpt_path,
            weights_only=True,
            verbose=False,
        )
    # Outside of the block: by now the results are in the run's folder
    print_summary(trainer)
    return 0


def predict(argv: list[str]) -> int:
    """Read ``--input``, predict and write ``--output``; or leave both to a callback."""
    from litlab.data.predictions import SUFFIXES
    from litlab.data.store import replace_folder

    command = Command(argv)
    config = command.config
    experiment = build_experiment(command)

    # Where predictions go is settled before any are made. Data that can't write them leaves it to a
    # callback, which the config must then name
    data: Any = experiment.data
    writes = hasattr(data, "write_predictions")
    suffixes = getattr(data, "output_suffixes", SUFFIXES)
    output = choose_output(config, suffixes) if writes else None
    data.predict_input = config.input

    # No run is joined: its curves and metrics stay as they are
    with saving_traceback():
        trainer = build_trainer(experiment, None)
        if not writes and not has_callback(trainer.callbacks, BasePredictionWriter):  # pyright: ignore[reportAttributeAccessIssue]
            raise UserError(
                f"predict: {type(data).__name__} has no write_predictions, and trainer.callbacks "
                "no BasePredictionWriter; add one of them to keep what is predicted"
            )
        outputs = trainer.predict(
            experiment.model,
            data,
            return_predictions=writes,
            ckpt_path=config.ckpt_path,
            weights_only=True,
        )

        # A folder is filled under another name and takes its own at the end, with its digests
        if output is not None:
            if "" in suffixes:  # the data writes folders
                with replace_folder(output) as folder:
                    data.write_predictions(outputs, str(folder))
            else:
                data.write_predictions(outputs, str(output))
                record_digests(output)
            rank_zero_info(f"Predictions: {output}")
    return 0


def choose_output(config: Any, suffixes: tuple[str, ...]) -> Path:
    """Return the file or folder that ``predict`` writes; refuse one that would replace something
    else.
    """
    from litlab.data.predictions import check_output

    if not config.input:
        raise UserError("--input: it is not set; give a file or a folder")
    # Left out, it is in the run's folder; without a run, in the working directory
    path = Path(config.output or Path(config.run or "", f"predictions{suffixes[0]}"))
    path = path.expanduser()
    check_output(path, suffixes)
    check_replaceable(path)
    return path
