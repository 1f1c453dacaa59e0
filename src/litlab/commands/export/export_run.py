"""Export the model of a run: built as ``test`` builds it, and written instead of tested."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litlab.artifact.manifest import others_in
from litlab.artifact.steps import serving_data
from litlab.cli.argv import pin_run
from litlab.cli.config import Command
from litlab.cli.fit import build
from litlab.cli.trainer import build_trainer
from litlab.commands.export.pipeline import export_model
from litlab.commands.export.report import print_report
from litlab.commands.export.request import Source, Wanted
from litlab.errors import UserError
from litlab.runs.folder import RunFolder
from litlab.util.files import check_folder


def export_run(argv: list[str], wanted: Wanted, output: Path | None) -> None:
    """Export a run's model into a folder that appears when all of it is right.

    Args:
        argv: A command line of ``test``.
        wanted: What is to be exported, and how.
        output: The folder to write; None for one in the run's folder.

    Raises:
        UserError: If it can't be exported, or something else would be lost.
    """
    command = Command(pin_run(argv))
    experiment = build(command)
    if experiment.export is not None:
        raise UserError(f"--run: {experiment.export} is an exported model; name the run that it is from")
    assert experiment.checkpoint is not None
    data = serving_data(experiment.data, experiment.model, "export")
    run = RunFolder(Path(command.config.run)) if command.config.run else None
    target = _choose_folder(wanted, run, output)

    file = Path(command.config.ckpt_path)
    trainer = build_trainer(experiment, None)
    source = Source(trainer, experiment.model, data, experiment.checkpoint, run, file)
    with _staged(target) as folder:
        manifest = export_model(source, wanted, folder)
    print_report(manifest, target)


def _choose_folder(wanted: Wanted, run: RunFolder | None, output: Path | None) -> Path:
    """Return the folder to write; refused where something else would be lost."""
    name = "-".join(filter(None, [wanted.form, wanted.quantize]))
    exported = Path("exported") if run is None else run.path / "exported"
    if output is None and exported.is_symlink():
        raise UserError(f"--output: {exported} is a link; choose another place")
    folder = Path(os.path.abspath(output or exported / name))  # `.` can't be renamed
    check_folder("--output", folder.parent)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--output: {folder} is not a folder; choose another place")
    if folder.is_mount():
        raise UserError(f"--output: {folder} can't be replaced, as it is a mount point; name a folder in it")
    if folder.is_dir() and (others := others_in(folder)):
        raise UserError(f"--output: {folder} holds other files ({others[0]}); choose another place")
    return folder


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside the target, which it replaces at the end, or is removed where something failed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield folder
        folder.chmod(0o755)  # temporary folders are private
        if target.is_dir():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.rename(old / "old")
            try:
                folder.rename(target)
            except BaseException:
                (old / "old").rename(target)
                raise
            finally:
                shutil.rmtree(old)
        else:
            folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
