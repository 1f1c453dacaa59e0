"""Whether the data of the configs is here, or can be had."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeGuard

from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import LightningDataModule

from litlab.cli.argv import find_bases
from litlab.cli.messages import describe_error
from litlab.commands.doctor.line import DATA, FAILED, NOTE, OK, WARNING, Line, described
from litlab.data.module import ExperimentData
from litlab.data.public import Unavailable, check_reachable
from litlab.errors import UserError
from litlab.util.team import typed
from litlab.util.yaml import read_mapping

SECONDS = 3.0  # to wait for the answer of a server


def data_sets(folder: Path) -> Iterator[Line]:
    """Look for the data of configs; a data set that several use is looked for once.

    Args:
        folder: Where the configs are.
    """
    used: dict[Any, tuple[LightningDataModule, list[str]]] = {}
    for config in sorted(folder.glob("*.yaml")):
        try:
            if (module := data_of(config)) is not None:
                used.setdefault(_source(module), (module, []))[1].append(config.stem)
        except Exception as error:  # a mistake in the file, or whatever a DataModule raises
            yield _trouble([config.stem], folder, error)
    if not any(folder.glob("*.yaml")):
        yield Line(DATA, "data sets", NOTE, f"there is no {folder}/*.yaml; run this in the folder of the project")

    def look(module: LightningDataModule, configs: list[str]) -> Line:
        try:
            return data_set(module, configs)
        except Exception as error:
            return _trouble(configs, folder, error)

    with ThreadPoolExecutor() as threads:  # all servers at once
        lines = list(threads.map(lambda one: look(*one), used.values()))
    yield from lines
    if any(line.facts.get("reachable") is False for line in lines):
        remedy = "behind a proxy: export https_proxy=http://HOST:PORT"
        yield Line(DATA, "downloads", NOTE, "not all servers can be reached from here", remedy)


def _trouble(configs: list[str], folder: Path, error: Exception) -> Line:
    """Return the line on data that can't be looked for."""
    command = typed("fit", "--config", f"{folder / configs[0]}.yaml", "--check")
    what = f"for {', '.join(configs)}: {describe_error(error) or described(error)}"
    return Line(DATA, configs[0], FAILED, what, f"{command} says more", {"configs": configs})


def data_of(config: Path) -> LightningDataModule | None:
    """Build the DataModule of a config, which reads no data yet; None where the config has none.

    Args:
        config: The file. It counts with those that it builds on.

    Raises:
        UserError: If there is a mistake in it.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningDataModule, "data")
    settings = None
    for file in (*find_bases(config), config):
        if "data" in (own := read_mapping(file)):
            try:
                settings = parser.parse_object({"data": own["data"]}, settings)
            except ArgumentError as error:  # a page of types that were tried
                raise UserError(f"{file}: data: a class or setting is not valid") from error
    return None if settings is None else parser.instantiate(settings).data


def _source(module: LightningDataModule) -> Any:
    """Return what is the same for two DataModules that read the same data."""
    if getattr(module, "generated", False):
        return "generated"
    if not _reads_files(module):
        return "other"
    if module.dataset is None:
        return module.path, module.public.name, module.cache_folder()
    return str(module.path), module.dataset


def _reads_files(module: LightningDataModule) -> TypeGuard[ExperimentData]:
    """Return whether it is known where a DataModule reads from."""
    return isinstance(module, ExperimentData) and (module.dataset is not None or module.public is not None)


def data_set(module: LightningDataModule, configs: list[str]) -> Line:
    """Say where a run would get its data.

    Args:
        module: The DataModule.
        configs: Names of the configs that use this data.
    """
    use, facts = f"for {', '.join(configs)}", {"configs": configs}
    if getattr(module, "generated", False):
        return Line(DATA, "generated", OK, f"{use}: made when it is needed", facts=facts)
    if not _reads_files(module):
        what = f"{use}: doctor can't tell what their DataModules read"
        return Line(DATA, "other data", NOTE, what, f"{typed('fit', '--config', 'FILE', '--check')} tries it", facts)
    if module.dataset is None:
        return public_data(module, use, facts)
    facts = {**facts, "path": str(module.path), "there": Path(module.path).exists()}
    if facts["there"]:
        return Line(DATA, str(module.path), OK, f"{use}: it is there", facts=facts)
    return Line(DATA, str(module.path), FAILED, f"{use}: it is not there", "put it there, or set data.path", facts)


def public_data(module: ExperimentData, use: str, facts: dict[str, Any]) -> Line:
    """Say whether a public data set is here, and otherwise whether it can be downloaded.

    Args:
        module: The DataModule.
        use: Which configs use it, in words.
        facts: The same for programs.
    """
    public, root, name = module.public, module.path, module.public.name
    cache = module.cache_folder()
    is_prepared = cache is not None and cache.is_dir()
    facts = {**facts, "path": str(root), "prepared": is_prepared, "there": _is_there(public, root), "reachable": None}
    if cache is not None and is_prepared:
        return Line(DATA, name, OK, f"{use}: prepared in {cache.parent}/", facts=facts)
    if facts["there"]:
        return Line(DATA, name, OK, f"{use}: in {root}/", facts=facts)
    urls = getattr(public, "urls", None)
    if not urls:
        return Line(DATA, name, NOTE, f"{use}: not in {root}/; where it is downloaded from is not known", facts=facts)
    try:
        check_reachable(urls, SECONDS)
    except Unavailable as error:
        facts["reachable"] = False
        remedy = f"put {', '.join(public.file_names)} into {root}/, or use {module.own_flags}"
        what = f"{use}: not in {root}/, and can't be downloaded ({error})"
        if module.fallback is None:
            return Line(DATA, name, FAILED, f"{what}: fit would stop", remedy, facts)
        return Line(DATA, name, WARNING, f"{what}: fit would use GENERATED data", remedy, facts)
    facts["reachable"] = True
    return Line(DATA, name, OK, f"{use}: not in {root}/ yet, but can be downloaded", facts=facts)


def _is_there(public: Any, root: Path) -> bool:
    """Return whether the files are in a folder, as they were downloaded or unpacked; what is in them is not checked."""
    unpacked = getattr(public, "folder", None)
    return bool(unpacked and any((root / unpacked).glob("*"))) or all(
        (root / name).is_file() for name in public.file_names
    )
