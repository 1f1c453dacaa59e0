"""What a task needs to train several networks instead of one, on the same batches."""

from collections.abc import Callable, Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.optim import Optimizer

from litlab.errors import UserError
from litlab.metrics.member_metrics import MemberMetrics
from litlab.nn.build import build_networks, same_weights
from litlab.nn.ensemble import Ensemble, bootstrap_counts, mean_prediction
from litlab.parallel.groups import shards
from litlab.tasks.supervised import SupervisedModule


class EnsembleModule(SupervisedModule):
    """Train one network, or several of one kind, each as if it were alone.

    A subclass calls `make_networks` and `set_members`, and gives the losses of its samples to `member_loss`.
    """

    member_metrics: MemberMetrics | None
    bootstrap = False

    def make_networks(self, network: nn.Module | Callable[[], nn.Module], members: int) -> list[nn.Module]:
        """Return networks of their own initialisation, of what the model was given as `network`."""
        return build_networks(network, members, self.hparams.get("network"))

    def set_members(self, networks: Sequence[nn.Module], bootstrap: bool, vectorize: bool | None, classes: int) -> None:
        """Set `network`, and what is measured of the members where there are several.

        Args:
            networks: One or more.
            bootstrap: Whether each has training samples of its own.
            vectorize: As of `Ensemble`.
            classes: Number of classes.

        Raises:
            UserError: A setting of an ensemble has no effect.
        """
        members = len(networks)
        for name, value in {"bootstrap": bootstrap, "vectorize": vectorize}.items():
            if value and members == 1:
                raise UserError(f"model.{name}: there is one network; set model.members, or leave {name} out")
        self.bootstrap = bootstrap
        self.network = networks[0] if members == 1 else Ensemble(networks, vectorize)
        self.member_metrics = None if members == 1 else MemberMetrics(members, classes)

    @property
    def networks(self) -> list[Any]:
        """The network, or the members of the ensemble."""
        return list(self.network.members) if isinstance(self.network, Ensemble) else [self.network]

    def setup(self, stage: str) -> None:
        """Draw the training samples of each member; refuse what divides a network."""
        if stage == "fit" and isinstance(self.network, Ensemble) and shards(self.trainer.strategy):
            raise UserError(
                f"model.members: trainer.strategy {type(self.trainer.strategy).__name__} divides a network, and an "
                "ensemble has several; use ddp or one device, or set model.members to 1"
            )
        if self.bootstrap and stage == "fit":
            data: Any = getattr(self.trainer, "datamodule", None)
            if not hasattr(data, "numbered"):
                raise UserError("model.bootstrap: the data does not number its samples; use an ExperimentData")
            data.numbered = True
            self._counts = bootstrap_counts(len(self.networks), data.sizes["train"], data.seed)

    def teardown(self, stage: str) -> None:
        """Let the data give plain batches again."""
        if self.bootstrap and stage == "fit":
            self.trainer.datamodule.numbered = False  # pyright: ignore[reportAttributeAccessIssue]

    def on_fit_start(self) -> None:
        """Compare model and data, and say how members are computed."""
        super().on_fit_start()
        if isinstance(self.network, Ensemble):
            if not self.bootstrap and same_weights(self.networks):
                raise UserError(
                    "model.members: all have the same weights and would learn the same; in Python give Classifier the "
                    "network's class, or a function that makes it"
                )
            rank_zero_info(self.network.description)
        if self.bootstrap:
            self._counts = self._counts.to(self.device)

    def member_loss(self, losses: Tensor) -> Tensor:
        """Return the mean loss, shape (), of which each member gets the gradient of its own loss.

        Args:
            losses: Those of each member's samples, (member, batch).

        Raises:
            UserError: They are of a part of the batch, of which it is not known which samples each member has drawn.
        """
        if self.bootstrap:
            data: Any = self.trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
            if losses.shape[1] != len(data.batch_numbers):
                raise UserError(
                    "model.bootstrap: members have samples of their own, so a callback that computes the loss of parts "
                    "of a batch (GradientNoiseScale) can't go with it; leave one of the two out"
                )
            losses = losses * self._counts[:, data.batch_numbers]
        mean, others = losses.mean(), len(losses) - 1
        return mean * (others + 1) - (mean * others).detach() if others else mean

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip gradients as the trainer's flags say; by the norm of each member on its own."""
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        refused = scaled and getattr(optimizer, "_step_supports_amp_scaling", False)  # by Lightning: not unscaled yet
        if len(self.networks) == 1 or not gradient_clip_val or gradient_clip_algorithm == "value" or refused:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        for network in self.networks:
            nn.utils.clip_grad_norm_(network.parameters(), gradient_clip_val)

    def on_test_start(self) -> None:
        """Compare model and data, and reset what is measured of the members."""
        super().on_test_start()
        if self.member_metrics is not None:
            self.member_metrics.reset(self.device)

    def test_logits(self, inputs: Any, target: Tensor) -> Tensor:
        """Return the logits of a test batch, shape (batch, classes); those of members are measured."""
        members = self(inputs)
        logits = mean_prediction(members)
        if self.member_metrics is not None:
            self.member_metrics.add(members, logits, target)
        return logits

    def on_test_epoch_end(self) -> None:
        """Log the means over the test split, and those of the members."""
        super().on_test_epoch_end()
        if self.member_metrics is not None and self.member_metrics.seen:
            self.log_dict(self.member_metrics.compute(self.sum_over_ranks), sync_dist=True)
