"""``ExportCLI``: builds model and data of a run as ``test`` does, and exports the model instead."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litlab.artifact.manifest import others_in
from litlab.artifact.steps import serving_data
from litlab.cli.environment import check_folder
from litlab.cli.experiment_cli import ExperimentCLI
from litlab.errors import UserError
from litlab.export.pipeline import export_model
from litlab.export.report import print_report
from litlab.export.request import Source, Wanted
from litlab.runs.folder import RunFolder


class ExportCLI(ExperimentCLI):
    """The command line of ``export``.

    Args:
        wanted: What is to be exported, and how.
        output: The folder to write; None for one in the run's folder.
    """

    def __init__(self, wanted: Wanted, output: Path | None) -> None:
        self.wanted = wanted
        self.target = output
        super().__init__()

    def _compare_with(self, run: RunFolder, config: dict[str, Any]) -> None:
        """Leave out the list of settings that differ: ``export`` itself has set most of them."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Export the model into a folder that appears when all of it is right."""
        if self.plan.exported is not None:
            raise UserError(f"--run: {self.plan.exported} is an exported model; name the run that it is from")
        assert self.checkpoint is not None
        data = serving_data(self.datamodule, self.model, "export")
        target = self._folder()
        run, file = self.plan.run, self.plan.checkpoint
        assert file is not None
        source = Source(self.trainer, self.model, data, self.checkpoint, run, file)
        with _staged(target) as folder:
            manifest = export_model(source, self.wanted, folder)
        print_report(manifest, target)

    def _folder(self) -> Path:
        """Return the folder to write; refused where something else would be lost."""
        name = "-".join(filter(None, [self.wanted.form, self.wanted.quantize]))
        run = self.plan.run
        folder = self.target or (run.path / "exported" / name if run is not None else Path("exported") / name)
        folder = Path(os.path.abspath(folder))  # `.` can't be renamed
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
