"""MAML on sinusoids: beside first-order MAML and joint training, and vmap over the tasks beside a loop over them.

python benchmarks/maml.py                                        18 fits, each of some minutes
python benchmarks/maml.py --shots 10 --seeds 1 -- --trainer.max_epochs 2    flags after -- are for the fits

Each fit, `python -m project fit --config configs/maml.yaml`, is a process of its own on one thread, two at a time; the
figures are those of its test.
The two ways of computing a training step are measured in turns.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from common import CONFIGS, project, save, split_flags, summary
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.func import functional_call

from project.data.sinusoids import Sinusoids
from project.models.maml import MAML, TEST_STEPS
from project.networks.mlp import MLP

METHODS = {
    "MAML": ["--model.inner_steps", 1],
    "first-order MAML": ["--model.inner_steps", 1, "--model.first_order", "true"],
    "joint training": ["--model.inner_steps", 0],
}


def fit(folder: Path, method: str, shots: int, seed: int, flags: list[str]) -> dict[str, float]:
    """Fit once, in a new folder; return the mean squared errors of the test, by inner steps."""
    folder.mkdir()
    project(
        folder, "fit", "--config", CONFIGS / "maml.yaml", "--experiment", "maml", "--data.shots", shots,
        "--data.queries", shots, "--seed_everything", seed, "--trainer.accelerator", "cpu",
        "--trainer.enable_progress_bar", "false", *METHODS[method], *flags,
    )  # fmt: skip
    test = json.loads((folder / "lightning_logs/maml/version_0/metrics.json").read_text())["test"]
    return {f"mse_{steps}": round(test[f"test/mse_{steps}"], 4) for steps in TEST_STEPS}


def loop_loss(model: MAML, batch: dict[str, Tensor]) -> Tensor:
    """Return the training loss of second-order MAML with one inner step, task by task with autograd."""
    params: dict[str, Tensor] = dict(model.network.named_parameters())
    losses = []
    for support_x, support_y, query_x, query_y in zip(
        *(batch[name] for name in ("support_x", "support_y", "query_x", "query_y")), strict=True
    ):
        loss = (functional_call(model.network, params, (support_x,)) - support_y).square().mean()
        gradients = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        adapted = {
            name: value - model.inner_lr * slope for (name, value), slope in zip(params.items(), gradients, strict=True)
        }
        losses.append((functional_call(model.network, adapted, (query_x,)) - query_y).square().mean())
    return torch.stack(losses).mean()


def training_step(loss: Callable[[MAML, dict[str, Tensor]], Tensor], batch: dict[str, Tensor]) -> Callable[[], None]:
    """Return a step of a model of its own: loss, backward pass, Adam."""
    torch.manual_seed(0)
    model = MAML(MLP([40, 40], image_shape=(1, 1, 1), num_classes=1))
    optimizer = torch.optim.Adam(model.parameters(), 0.001, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()

    return step


def milliseconds(tasks: int, turns: int) -> dict[str, dict[str, float]]:
    """Return the time of a training step of both ways, measured in turns, and their ratio."""
    batch = next(Sinusoids(batch_size=tasks).batches("train"))
    steps = {"vmap": training_step(MAML.batch_loss, batch), "loop": training_step(loop_loss, batch)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-3, turns):  # the first ones warm up
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            if turn >= 0:
                times[name].append(round(1000 * (time.perf_counter() - begin), 3))
    ratios = [round(loop / mapped, 3) for loop, mapped in zip(times["loop"], times["vmap"], strict=True)]
    return {**{name: summary(values) for name, values in times.items()}, "loop / vmap": summary(ratios)}


def main() -> None:
    own, flags = split_flags()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=200, help="of the timing")
    options = parser.parse_args(own)
    torch.set_num_threads(1)
    steps = {f"{tasks} tasks": milliseconds(tasks, options.turns) for tasks in (25, 4)}
    print(json.dumps(steps), flush=True)
    cases = [(shots, seed, method) for shots in options.shots for seed in range(options.seeds) for method in METHODS]
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(max_workers=2) as pool:

        def run(case: tuple[int, int, str]) -> dict[str, float]:
            shots, seed, method = case
            return fit(Path(place, f"{shots} {seed} {method}"), method, shots, seed, flags)

        found = list(track(pool.map(run, cases), total=len(cases), console=Console(stderr=True)))
    rows: dict[tuple[int, str], list[dict[str, float]]] = {}
    for (shots, _, method), errors in zip(cases, found, strict=True):
        rows.setdefault((shots, method), []).append(errors)
    table = {
        f"{shots} shots, {method}": {name: summary([errors[name] for errors in own]) for name in own[0]}
        for (shots, method), own in rows.items()
    }
    save(
        "maml",
        {"seeds": options.seeds, "flags": flags, "threads": 1, "mse": table, "milliseconds_per_step": steps},
    )


if __name__ == "__main__":
    main()
