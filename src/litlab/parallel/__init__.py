"""Networks divided among processes: what a network says of it, and the strategies that do it."""

from litlab.parallel.pipeline_strategy import PipelineStrategy
from litlab.parallel.plan import ParallelPlan
from litlab.parallel.strategy import ShardedStrategy

__all__ = ["ParallelPlan", "PipelineStrategy", "ShardedStrategy"]
