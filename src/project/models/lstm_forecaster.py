"""The forecasting experiment's model."""

from collections.abc import Callable
from functools import partial
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.tasks import Forecaster
from litlab.types import OpenUnitInterval
from litlab.util.recipes import plain_recipe
from project.networks.window_forecast import FixedMap, ForecastEnsemble


class LSTMForecaster(Forecaster):
    """A `Forecaster` with a recurrent network, optionally with a ridge regression beside it, or
    with the mean of several such networks.

    Args:
        network: The network, such as project.networks.segment_rnn.SegmentRNN.
        ensemble: The forecast is the mean of several networks, one per entry, which are trained
            side by side and independently. An entry says what differs from the settings of
            `network`, such as {last_rows: 168, skip: none}. By default, there is one network.
        quantiles: Quantiles to forecast, see `Forecaster`.
        **settings: horizon, num_targets, loss, coverage, optimizer, schedule and param_groups, as
            of `Forecaster`.

    Raises:
        UserError: If model and data don't fit together.
    """

    def __init__(
        self,
        network: Callable[[int], nn.Module],
        *,
        ensemble: list[dict[str, Any]] | None = None,
        quantiles: list[OpenUnitInterval] | None = None,
        **settings: Any,
    ) -> None:
        members = build_members(network, len(quantiles or [1]), ensemble or [{}])
        several = members[0] if ensemble is None else ForecastEnsemble(members)
        super().__init__(several, quantiles=quantiles, **settings)

    def on_train_start(self) -> None:
        """Set the skips that are ridge regressions, unless a checkpoint holds them."""
        parts = self.network.modules()
        maps = [part for part in parts if isinstance(part, FixedMap) and not part.is_set]
        data = getattr(self.trainer, "datamodule", None)
        if maps and not hasattr(data, "ridge"):
            raise UserError(
                f"model.network.skip: ridge needs a DataModule with ridge(), and "
                f"{type(data).__name__} has none; use SeriesData or skip: linear"
            )
        for part in maps:
            # Solved once: ranks whose solutions differ in the last bit would train different
            # networks
            weight: Tensor | None = None
            if self.trainer.is_global_zero:
                weight = data.ridge(part.weight.shape[1]).cpu()  # pyright: ignore[reportOptionalMemberAccess]
            part.set(self.trainer.strategy.broadcast(weight))  # pyright: ignore[reportArgumentType]


def build_members(
    network: Callable[..., nn.Module], outputs: int, differences: list[dict[str, Any]]
) -> list[nn.Module]:
    """Build a network for each entry of `ensemble`, which is checked like the config."""
    recipe = partial(plain_recipe(network))
    parser = ArgumentParser(exit_on_error=False)
    kind: Any = recipe.func
    parser.add_class_arguments(kind, skip={"outputs"})
    for entry in differences:
        try:
            parser.parse_object(entry)
        except ArgumentError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"model.ensemble: {reason}; correct it") from error
    return [recipe(outputs, **entry) for entry in differences]
