"""Data at URLs: copied once into the folder of caches, and read there like any other."""

from pathlib import Path
from typing import Any

from litlab.data.store import fill_cache, name_cache, progress_bar
from litlab.errors import UserError, first_line

# What file systems tell that changes with a file
_MARKS = ("size", "ETag", "etag", "mtime", "LastModified", "last_modified", "created", "xet_hash")


def find_local(path: Any, setting: str, cache_dir: Path) -> Any:
    """Return where data lies on this machine; what is at a URL is copied there first.

    A copy is made again where a file has another size, time or tag than before.

    Args:
        path: A path, or a URL that fsspec opens, of a file or a folder; a frame stays as it is.
        setting: Where it is from, for messages.
        cache_dir: Folder for the copies.

    Raises:
        UserError: There is nothing at the URL, or it can't be read.
    """
    if not isinstance(path, str) or "://" not in path:
        return Path(path).expanduser() if isinstance(path, str) else path
    import fsspec
    from fsspec.callbacks import TqdmCallback

    # What is at the URL now, not what fsspec has in memory from before
    try:
        system, remote = fsspec.url_to_fs(path)
        system.invalidate_cache()
        files: dict[str, Any] = system.find(remote, detail=True)
        if not files:
            raise FileNotFoundError("there is nothing")
        is_folder = system.isdir(remote)
        for name, info in files.items():
            if info.get("size") is None:  # over HTTP
                files[name] = system.info(name)
    except Exception as error:  # each file system raises its own
        raise UserError(
            f"{setting}: {path} can't be read ({first_line(error)}); correct it, or copy the data "
            "here"
        ) from error
    # The copy's name changes with the files, so that an old copy is not taken for the new ones
    marks = [(name, *(str(info.get(mark)) for mark in _MARKS)) for name, info in files.items()]
    copy = Path(remote).name

    def fill(folder: Path) -> None:
        with TqdmCallback({"desc": f"copying {copy}"}, tqdm_cls=progress_bar) as callback:
            system.get(
                f"{remote.rstrip('/')}/" if is_folder else remote,
                f"{folder / copy}/" if is_folder else str(folder / copy),
                recursive=is_folder,
                callback=callback,
            )

    folder = cache_dir / name_cache("remote", path, marks)
    fill_cache(folder, fill)
    return folder / copy
