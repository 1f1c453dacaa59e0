"""Networks divided among processes: what a network says of it, and the strategies that do it."""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning.pytorch.strategies import Strategy, StrategyRegistry

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.parallel.pipeline_strategy import PipelineStrategy
    from litlab.parallel.plan import ParallelPlan
    from litlab.parallel.strategy import ShardedStrategy

__all__ = ["ParallelPlan", "PipelineStrategy", "ShardedStrategy"]

__getattr__ = export_lazily(__name__)


def _build(name: str, **settings: Any) -> Strategy:
    return getattr(import_module(__name__), name)(**settings)


# Names for trainer.strategy; their modules are imported when one is built.
for name, kind in {"fsdp2": "ShardedStrategy", "pipeline": "PipelineStrategy"}.items():
    StrategyRegistry.register(name, partial(_build, kind))
