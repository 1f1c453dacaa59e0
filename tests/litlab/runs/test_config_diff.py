"""What is said of settings that change in the middle of a run."""

import pytest

from litlab.errors import UserError
from litlab.runs.config_diff import check_resumption, consequences


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["seed_everything"], ["seed_everything: the order of the batches and all random numbers differ from here on"]),
        (["data.batch_size"], ["data.batch_size: the number of steps per epoch, or of samples per step, differs"]),
        (
            ["trainer.accumulate_grad_batches", "data.tokens_per_batch", "trainer.limit_train_batches"],
            ["data.tokens_per_batch, trainer.accumulate_grad_batches, trainer.limit_train_batches: the number of"],
        ),
        (["data.augment.flip", "data.seed"], ["data.seed: the order", "data.augment.flip: the batches differ"]),
        (["data.path", "data.test_path", "data.cache_dir"], []),  # the same files may have been moved
        (["data.num_workers", "data.pin_memory", "data.persistent_workers", "data.prefetch_factor"], []),
        (["trainer.max_epochs", "model.optimizer.lr"], []),
    ],
)
def test_each_kind_of_change_is_announced(keys, says):
    lines = consequences({key: [1, 2] for key in keys})
    assert len(lines) == len(says)
    assert all(line.startswith(start) for line, start in zip(lines, says, strict=True))


@pytest.mark.parametrize("key", ["seed_everything", "data.batch_size", "trainer.accumulate_grad_batches"])
def test_within_an_epoch_its_batches_stay(key):
    def resume(ready: int, last: bool) -> None:
        batches = {"current": {"ready": ready}, "is_last_batch": last}
        progress = {"epoch_progress": {"current": {"processed": 1}}, "epoch_loop.batch_progress": batches}
        check_resumption("run", {"loops": {"fit_loop": progress}, "global_step": 9}, {key: [1, 2]}, {})

    resume(5, True)
    with pytest.raises(UserError, match=rf"run continues within epoch 2, after batch 3, .*{key}: 1 -> 2"):
        resume(3, False)
