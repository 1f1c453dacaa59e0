"""Where the compiler keeps what it has compiled, so that the next run of the experiment need not wait for it.

PyTorch's portable form of the cache (``torch.compiler.save_cache_artifacts``) is not used: for CPUs it holds C++ source
and no machine code, so that a warm start on another machine takes as long as a cold one.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from lightning.pytorch.utilities import rank_zero_info
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from litlab.errors import UserError

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # read by the compiler whenever it looks into its cache
LIMIT = 2**31  # bytes
LOCK = ".lock"


def is_chosen_by_user() -> bool:
    """Return whether the user has set the folder; PyTorch puts its own into the variable, too."""
    return os.environ.get(VARIABLE, default_cache_dir()) != default_cache_dir()


class CompileCache:
    """The folder of compiled code of one experiment.

    PyTorch looks a graph up by its code, input sizes, version and hardware, and writes its files whole, so that ranks,
    runs and trials can share the folder. What is in it is executed: the folder is made for its owner alone, and one
    that others could have written to is refused. A folder that has grown past 2 GiB is emptied by the next run that
    has it to itself.

    Args:
        folder: The folder. It is made where it is missing.

    Raises:
        UserError: If it belongs to somebody else, others can write to it, or it can't be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # torch 2.10 fails with a relative path
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise UserError(
                    f"compile: {folder} holds code that is run, and others can write to it; remove it, or set the "
                    f"variable {VARIABLE} to a folder of your own"
                )
            self._lock: BinaryIO = (self.folder / LOCK).open("ab")
        except OSError as error:
            raise UserError(
                f"compile: {folder} can't be made ({error.strerror}); set the variable {VARIABLE} to another folder"
            ) from error
        self._before = os.environ.get(VARIABLE)
        self._share()
        os.environ[VARIABLE] = str(self.folder)

    def close(self) -> None:
        """Let the compiler use the folder that it used before."""
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before
        self._lock.close()

    def _share(self) -> None:
        """Lock the folder with all others that use it; empty it first if there are none and it is too large."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # another process compiles, or uses what is there
        except OSError:  # a network file system without locks: nothing is ever removed there
            return
        else:
            self._empty_if_large()
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def _empty_if_large(self) -> None:
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        if size <= LIMIT:
            return
        try:
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
        except OSError as error:
            rank_zero_info(f"compile: {self.folder} has grown to {size / 2**30:.1f} GiB and can't be emptied ({error})")
            return
        rank_zero_info(f"compile: {self.folder} had grown to {size / 2**30:.1f} GiB and was emptied")
