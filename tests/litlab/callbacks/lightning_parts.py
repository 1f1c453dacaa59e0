"""What the configs of test_lightning_callbacks.py name: functions and callbacks that note what they see."""

from lightning.pytorch import Callback

SEEN: dict[str, list] = {}


class Watch(Callback):
    """Notes learning rates and batch sizes, and which weights are tested; stops a fit where it is told to."""

    stop_at: int | None = None  # epoch

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == Watch.stop_at:
            raise InterruptedError("stopped")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        groups = trainer.optimizers[0].param_groups
        SEEN.setdefault("rates", []).append([group["lr"] for group in groups])
        inputs = batch["past"] if isinstance(batch, dict) else batch[0]
        SEEN.setdefault("sizes", []).append(len(inputs))

    def on_test_start(self, trainer, pl_module):
        SEEN["tested"] = [{name: weight.clone() for name, weight in pl_module.state_dict().items()}]


def note_end(trainer, pl_module):
    SEEN["ended"] = [trainer.global_step]
