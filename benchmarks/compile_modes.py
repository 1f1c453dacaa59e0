"""What torch.compile gains: step time, compile seconds cold and warm, and the epochs until they are paid back.

    python benchmarks/compile_modes.py --experiments cifar text forecast --steps 20 --repeats 5

Each way of compiling trains a process of its own, which steps whenever it is told to: the ways take turns, so that what
else the machine does falls on all of them alike. Cold is a start with an empty compiler cache; warm is the start of the
process that is measured, with the cache of the cold one. Seconds of a start are those that the compiler says it took.
Training steps only, on the experiment's own batches; the results go to results/compile_modes.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save, summary

ROOT = Path(__file__).resolve().parents[1]
WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "default": {"mode": "default"},
    "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "dynamic": {"mode": "default", "dynamic": True},
    "blocks": {"mode": "default", "blocks": True},
}


def build(experiment: str, flags: list[str]) -> Any:
    """Return the model, data and Trainer of a command line of the project."""
    from litlab.testing import build_experiment
    from litlab.util.team import use_package

    use_package("project")
    return build_experiment("--config", str(ROOT / f"configs/{experiment}.yaml"), *flags)


def work(experiment: str, way: str, steps: int, flags: list[str]) -> None:
    """Fit; write a line of JSON whenever `steps` steps are done, and wait for one before the next."""
    from lightning.pytorch import Callback

    from litlab.callbacks import Compile

    compiled = Compile(**WAYS[way])

    class Turns(Callback):
        done, started = 0, 0.0

        def on_train_batch_start(self, trainer, *args, **kwargs):
            if self.done % steps == 0:
                line = {"seconds": self.seconds if self.done else None, "compile": compiled.seconds}
                line["batches"] = trainer.num_training_batches
                print(json.dumps(line), file=sys.__stdout__, flush=True)
                if not sys.stdin.readline():
                    os._exit(0)
                self.started = time.perf_counter()

        def on_train_batch_end(self, *args, **kwargs):
            self.done += 1
            self.seconds = (time.perf_counter() - self.started) / steps

    plain = [
        "--checkpoint=null", "--vram=null", "--early_stopping=null", "--compile=null", "--trainer.logger=false",
        "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.callbacks=[]",
        "--trainer.max_epochs=1000", "--trainer.num_sanity_val_steps=0", "--trainer.limit_val_batches=0",
    ]  # fmt: skip
    sys.stdout = sys.stderr
    model, data, trainer = build(experiment, [*plain, *flags])
    trainer.callbacks += [compiled, Turns()]
    trainer.fit(model, data)


class Worker:
    """A process that steps in turns with others."""

    def __init__(self, experiment: str, way: str, cache: Path, arguments: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--work", experiment, way, "--steps", str(arguments.steps)]
        command += ["--", *arguments.flags]
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self.log = (cache.parent / f"{experiment}-{way}.log").open("w")
        self.process = subprocess.Popen(
            command, cwd=arguments.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True,
        )  # fmt: skip
        self.last = self._read()

    def step(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.last = self._read()
        return self.last

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.log.flush()
            raise RuntimeError(Path(self.log.name).read_text()[-600:])
        return json.loads(line)


def measure(experiment: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One experiment in all ways."""
    results: dict[str, Any] = {}
    workers: dict[str, Worker] = {}
    for way in arguments.ways:
        cache = folder / f"{experiment}-{way}"
        cache.mkdir(mode=0o700)
        try:
            cold = Worker(experiment, way, cache, arguments)
            seconds = cold.step()["compile"]
            cold.end()
            workers[way] = Worker(experiment, way, cache, arguments)
            results[way] = {"cold_seconds": seconds, "warm_seconds": workers[way].step()["compile"]}
        except RuntimeError as error:  # such as: this network has no blocks
            lines = [line for line in str(error).splitlines() if line.startswith(("error", "litlab.errors"))]
            results[way] = {"refused": lines[-1] if lines else str(error)}
    times: dict[str, list[float]] = {way: [] for way in workers}
    for _ in range(arguments.repeats):
        for way, worker in workers.items():
            times[way].append(worker.step()["seconds"])
    for way, worker in workers.items():
        results[way]["step_seconds"] = summary(times[way])
        results[way]["compile_seconds_after_warm_up"] = worker.last["compile"] - results[way]["warm_seconds"]
        worker.end()
    if "eager" in workers:
        _payback(results, workers["eager"].last["batches"])
    return results


def _payback(results: dict[str, Any], batches: int) -> None:
    eager = results["eager"]["step_seconds"]["median"]
    for result in results.values():
        if "step_seconds" in result:
            gain = eager - result["step_seconds"]["median"]  # seconds a step
            result["speed"] = eager / result["step_seconds"]["median"]
            for start in ("cold", "warm"):
                seconds = result[f"{start}_seconds"]
                result[f"epochs_until_paid_{start}"] = seconds / (gain * batches) if gain > 0 and seconds else None


def main() -> None:
    """Measure, or work for the process that does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", default=["cifar", "text", "forecast"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--steps", type=int, default=10, help="in one turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each way")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, default=Path(), help="where data/ is, or will be")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", help="of `fit`, after --")
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work, arguments.steps, arguments.flags)
        return
    with tempfile.TemporaryDirectory() as folder:
        results = {name: measure(name, arguments, Path(folder)) for name in arguments.experiments}
    save("compile_modes", {"steps": arguments.steps, "threads": arguments.threads, "experiments": results})


if __name__ == "__main__":
    main()
