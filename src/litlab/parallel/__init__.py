"""Networks divided among processes: what a network says of it, and the strategy that does it."""

from typing import TYPE_CHECKING

from lightning.pytorch.strategies import StrategyRegistry

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.parallel.plan import ParallelPlan
    from litlab.parallel.strategy import ShardedStrategy

__getattr__ = export_lazily(__name__)


# A name for trainer.strategy; the module is imported when one is built.
StrategyRegistry.register("fsdp2", lambda **settings: __getattr__("ShardedStrategy")(**settings))
