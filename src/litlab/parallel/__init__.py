"""Networks divided among processes: what a network says of it, and the strategies that do it."""

from typing import TYPE_CHECKING

from lightning.pytorch.strategies import StrategyRegistry

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.parallel.pipeline import PipelineStrategy
    from litlab.parallel.plan import ParallelPlan
    from litlab.parallel.strategy import ShardedStrategy

__getattr__ = export_lazily(
    __name__,
    {"pipeline": "PipelineStrategy", "plan": "ParallelPlan", "strategy": "ShardedStrategy"},
)


# Names for trainer.strategy; their modules are imported when one is built.
for name, kind in {"fsdp2": "ShardedStrategy", "pipeline": "PipelineStrategy"}.items():
    StrategyRegistry.register(name, lambda kind=kind, **settings: __getattr__(kind)(**settings))
