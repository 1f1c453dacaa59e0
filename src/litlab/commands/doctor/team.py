"""Whether the team's package can be imported, and what ``fit`` would then find here."""

from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.line import DEVICES, FAILED, OK, PYTHON, Line, described
from litlab.util.team import package, package_folder, typed

CONFIGS = Path("configs")


def experiments() -> Iterator[Line]:
    """Import what every ``fit`` imports, ask what ``precision: auto`` is, and look for the data of the configs."""
    try:
        from litlab.cli.quiet import silence_noise
        from litlab.cli.resolve import import_all_classes

        silence_noise()
        import_all_classes()
    except Exception as error:  # whatever a module raises
        what = f"its modules can't be imported, so its data was not looked for: {described(error)}"
        yield Line(PYTHON, package(), FAILED, what, f"{typed('fit', '--help')} shows where")
        return
    from litlab.commands.doctor.data import data_sets

    yield Line(PYTHON, package(), OK, f"its modules can be imported, from {package_folder()}")
    yield precision()
    yield from data_sets(CONFIGS)


def precision() -> Line:
    """Ask which precision ``auto`` is on the devices of this machine."""
    import torch

    from litlab.cli.precision import auto_precision

    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    other = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    chosen, why = auto_precision(gpus or [other])
    return Line(DEVICES, "precision: auto", OK, f"{chosen}, {why}", facts={"precision": chosen})
