"""The curves of a run, as its event files of TensorBoard have them."""

import logging
from pathlib import Path

Curves = dict[str, list[tuple[int, float]]]  # by name of the metric: steps and values


def read_curves(folder: Path) -> Curves:
    """Read the scalars in the folder of a run; {} where it has no event files."""
    if not any(folder.glob("events.out.tfevents.*")):
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # a resumed run repeats steps, and that is said
    events = EventAccumulator(str(folder), {"scalars": 0})
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}
