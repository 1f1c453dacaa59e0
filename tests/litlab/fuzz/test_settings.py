"""Odd settings by flag and by file: each builds, or is refused in one line."""

import os
import time
from pathlib import Path

import pytest
import yaml

from litlab.cli.start import register_classes
from tests.litlab.conftest import CONFIGS
from tests.litlab.fuzz.harness import Ending, run_input, verb_parser
from tests.litlab.fuzz.mutations import Mutator, settings

INPUTS = 40  # in the everyday run


@pytest.fixture
def mutator(tmp_path):
    def make(seed: int) -> Mutator:
        register_classes()
        config = yaml.safe_load((CONFIGS / "series.yaml").read_text())
        smoke = yaml.safe_load((CONFIGS / "with/smoke.yaml").read_text())["trainer"]
        config["trainer"] |= {**smoke, "accelerator": "cpu", "logger": False}
        return Mutator(settings(verb_parser("fit"), config), config, seed)

    return make


def replay(folder: Path, ending: Ending) -> str:
    """What is needed to try an input again."""
    written = [name for name in ending.arguments if name in ("over.yaml", "moved.yaml", "damaged.yaml")]
    texts = [f"    {name}: {(folder / name).read_bytes()!r}" for name in written]
    return "\n".join([str(ending), *texts])


def test_odd_settings(mutator, tmp_path):
    make = mutator(seed=11)
    kinds: list[str] = []
    for _ in range(INPUTS):
        ending = run_input(make.next(tmp_path), tmp_path)
        assert ending.fine, replay(tmp_path, ending)
        kinds.append(ending.kind)
    assert {"line", "ok"} <= set(kinds)  # neither all wrong nor all right


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_odd_settings_for_long(mutator, tmp_path):
    """As many as the time allows: FUZZ_MINUTES, FUZZ_SEED; the faults are listed at the end, each kind once."""
    seed = int(os.environ.get("FUZZ_SEED", time.time_ns() % 10**9))
    end = time.monotonic() + 60 * float(os.environ.get("FUZZ_MINUTES", "60"))
    make, tried, faults = mutator(seed), 0, {}
    while time.monotonic() < end:
        ending = run_input(make.next(tmp_path), tmp_path)
        tried += 1
        if not ending.fine:
            last = ending.text.strip().splitlines()[-1][:60]
            if (ending.kind, last) not in faults:
                faults[ending.kind, last] = replay(tmp_path, ending)
                print(f"\n{faults[ending.kind, last]}\n", flush=True)
        if tried % 20 == 0:
            left = (end - time.monotonic()) / 60
            print(
                f"\rseed {seed}: {tried} tried, {len(faults)} kinds of faults, {left:.0f} min left", end="", flush=True
            )
    assert not faults, f"seed {seed}, {tried} tried:\n" + "\n\n".join(faults.values())
