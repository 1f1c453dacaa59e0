"""A run that is interrupted and resumed ends with the bits of one that was not: weights, averages,
    every curve.

pytest -k resume_matrix                a representative part
pytest -k resume_matrix -m matrix      all of it
"""

import math
import shlex
from itertools import product

import pytest

from litlab.data import ImageData
from litlab.data.images.shards import write_shards
from litlab.data.store import new_folder
from tests.litlab.checkpointing.resuming import AT_CHECKPOINTS, EPOCHS, Cell, Resuming

INTERRUPT = "{class_path: tests.litlab.checkpointing.interrupting.Interrupt}"
BY_EPOCH = (
    "{class_path: GradientAccumulationScheduler, init_args: {scheduling: {0: 1, 1: 2, 2: 4}}}"
)
EVERY_BATCH = "--trainer.accumulate_grad_batches=1"
METRICS = """{
    # All it has seen, in lists
    auroc: {class_path: torchmetrics.AUROC, init_args: {task: multiclass}},
    # A sum of floats
    hinge: {class_path: torchmetrics.classification.MulticlassHingeLoss,
            init_args: {num_classes: 10}},
}"""
# Settings, each an experiment: of the images, or of what stands before it. Those in TOGETHER are
# also one.
SETTINGS = {
    # The second epoch is interrupted
    "frozen": """
        --freeze='{rules: [{params: network.5, epochs: 0}, {params: network, epochs: 2}]}'
        --model.param_groups='{rules: [{params: network.5, lr_scale: 2.0}], layer_decay: 0.5,
        decay_norms_and_biases: false}'
    """,
    "metrics": f"--model.metrics='{METRICS}'",
    "Muon": """
        --model.optimizer=litlab.optim.Muon --model.optimizer.lr=0.01 --model.optimizer.rest=sgd
        --model.optimizer.rest_lr=0.05
    """,
    "accumulation by epoch": f"{EVERY_BATCH} --trainer.callbacks='[{INTERRUPT}, {BY_EPOCH}]'",
    "mixup and cutmix": "--model.mixup=0.2 --model.cutmix=1.0",
    "activation checkpointing": "--activation_checkpointing.blocks=[network.1,network.5]",
    "adaptive clipping": "--agc.factor=0.1 --grad_norms={}",
    "classes drawn evenly": "--data.balance=even",
    "averaged": "--ema=null --swa.start=0",
    "8-bit AdamW": """
        --model.optimizer=torchao.optim.AdamW8bit --model.optimizer.lr=0.01 --model.width=128
    """,
    "in the backward pass": f"""
        {EVERY_BATCH} --nan_guard=null --trainer.callbacks+=OptimizerInBackward
    """,
    "bfloat16": "--trainer.precision=bf16-true",
    "compiled": "--compile.mode=default",
    "by epoch": "--checkpoint.every_n_train_steps=null",
    "unvalidated": "--trainer.limit_val_batches=0",
    "often": "--trainer.val_check_interval=2",
    "rare": "--trainer.check_val_every_n_epoch=2",
    **{
        f"stopping by {monitor}": f"""
            --early_stopping.monitor={monitor}/loss --early_stopping.patience=2
            --early_stopping.min_delta=10 --trainer.max_epochs=4
        """
        for monitor in ("train", "val")
    },
}
TOGETHER = " + ".join([*SETTINGS][2:9])
# Than 10 below the best: always
WORSE = """torch.optim.lr_scheduler.ReduceLROnPlateau,
           init_args: {patience: 0, threshold: 10.0, threshold_mode: abs}"""
SCHEDULERS = {
    "cosine": "CosineAnnealingLR",
    "one-cycle": "OneCycleLR, init_args: {max_lr: 0.1}",
    "val": WORSE,
    "train": WORSE,
    "restarts": "CosineAnnealingWarmRestarts, init_args: {T_0: 2}",
    "warm-up": "WarmupDecay, init_args: {warmup: 0.3, decay: cosine}",
}
SCHEDULES = {
    f"{name} {interval} {frequency}": f"""
        --model.schedule='{{scheduler: {{class_path: {path}}}, interval: {interval}, frequency:
        {frequency}, monitor: {f"{name}/loss" if interval == "epoch" else "drawn"}}}'
    """
    for (name, path), interval, frequency in product(SCHEDULERS.items(), ("step", "epoch"), (1, 2))
}
EXTRAS = "averaged", "accumulation by epoch", *[*SETTINGS][-4:]
WITH_EXTRAS = (
    f"{name} epoch 2 + {extra}" for name in ("val", "train", "warm-up") for extra in EXTRAS
)

# After how many steps it is resumed
REPRESENTATIVE = {
    # Saving must not change how floats are summed
    Cell("streamed + frozen + metrics", "SIGTERM", "inside", workers=2): 6,
    Cell("series", "SIGTERM", "validation", ranks=2): 8,
    Cell("series", "SIGTERM", "validation"): 8,
    Cell("series + val step 2 + unvalidated", "SIGINT", "last step"): 12,
    Cell("series", "SIGTERM", "last batch"): 8,
    Cell("series", "kill", "best"): 7,
    Cell("series", "full", "removed, end"): 11,
    Cell("series", "kill", "test"): 12,
    Cell("series + val epoch 1 + by epoch", "exception", "end"): 4,
    Cell("series + warm-up step 1 + averaged + often", "SIGINT", "validation within"): 6,
    Cell("series + val step 2 + unvalidated", "SIGTERM", "last batch"): 8,
    Cell("series + train epoch 1 + stopping by train + by epoch", "exception", "first batch"): 8,
    Cell("series + one-cycle step 2 + accumulation by epoch", "SIGHUP", "between"): 9,
}
WAYS = [("kill", "inside", 2, 2), ("SIGTERM", "last batch", 0, 1), ("exception", "end", 2, 1)]
MATRIX = [
    *product(
        ["images"],
        ("kill", "SIGTERM", "exception"),
        ("inside", "last batch", "validation", "end"),
        (0, 2),
        (1, 2),
    ),
    *product(["series"], ("kill", "exception"), AT_CHECKPOINTS, (0,), (1, 2)),
    *product(["streamed"], ["kill"], ("inside", "end"), (0, 2), (2,)),
    *product(["series"], ["full"], ("best", "removed", "best, end", "removed, end")),
    *((experiment, *way) for experiment in ("text", "series", "frozen") for way in WAYS),
    *product([*SETTINGS, TOGETHER], ["kill"], ["inside"]),
    *product(
        [
            f"series + {schedule}{saved}"
            for schedule in (*SCHEDULES, *WITH_EXTRAS) for saved in ("", " + by epoch")
        ],
        ["exception"], ("inside", "first batch", "validation", "end"),
    ),
    ("metrics", "kill", "inside", 0, 2),
]  # fmt: skip


def list_cells():
    """With a validation after every two batches there is none after the seventh."""
    for experiment, how, place, *rest in dict.fromkeys(MATRIX):
        within = place == "validation" and "often" in experiment
        yield Cell(experiment, how, "validation within" if within else place, *rest)


@pytest.fixture(scope="module")
def resuming(images, small_data, tmp_path_factory) -> Resuming:
    folder = tmp_path_factory.mktemp("shards")
    data = ImageData("folder", str(images), cache="none", cache_dir=str(folder))
    data.setup()
    with new_folder(folder / "images") as staging:
        write_shards(data, staging, 50_000)

    # The config and data of an experiment, and a batch with which an epoch has BATCHES.
    shards = f"--data.dataset=shards --data.path={folder}/images --data.shuffle_shards=3"
    cut = "--data.max_tokens=16 --data.long_texts=crop"
    experiments = {
        "images": (small_data["images"], 22),
        "streamed": ([*small_data["images"], *shards.split()], 23),
        "text": ([*small_data["text"], *cut.split()], 18),
        "series": (small_data["series"], 96),
    }

    def own(cell: Cell) -> list[str]:
        first = cell.experiment.partition(" + ")[0]
        flags, batch = experiments.get(first, experiments["images"])
        return [*flags, f"--data.batch_size={math.ceil(batch / cell.ranks)}"]

    settings = SETTINGS | SCHEDULES

    def over(cell: Cell) -> list[str]:
        names = cell.experiment.split(" + ")
        return shlex.split(" ".join(settings.get(name, "") for name in names))

    return Resuming("auks", tmp_path_factory.mktemp("resuming"), own, over)


@pytest.mark.parametrize("cell", REPRESENTATIVE, ids=str)
def test_a_resumed_run_is_exact(cell, resuming, signals):
    assert resuming.interrupted(cell) == (REPRESENTATIVE[cell], [])
    if "metrics" in cell.experiment:
        ran = resuming.whole(cell)
        for stage, name in product(("train", "val"), ("auroc", "hinge")):
            assert len(ran[f"curves/{stage}/{name}"]) == EPOCHS
        assert len({value for _, value in ran["curves/train/auroc"]}) == EPOCHS


@pytest.mark.matrix
@pytest.mark.parametrize("cell", [*list_cells()], ids=str)
def test_matrix(cell, resuming, signals):
    if cell.experiment == "8-bit AdamW":
        pytest.importorskip("torchao")
    step, differs = resuming.interrupted(cell)
    assert differs == [], f"from step {step}"
