"""Lightning callbacks and a profiler, one a file."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.callbacks.activation_checkpointing import ActivationCheckpointing
    from litlab.callbacks.agc import AGC
    from litlab.callbacks.batch_finder import BatchFinder
    from litlab.callbacks.compile import Compile
    from litlab.callbacks.ema import EMA
    from litlab.callbacks.evaluation import Baselines, ConfusionMatrix
    from litlab.callbacks.free_gradients import FreeGradients
    from litlab.callbacks.freeze import Freeze, FreezeRule
    from litlab.callbacks.grad_norms import GradNorms
    from litlab.callbacks.lr_finder import LRFinder
    from litlab.callbacks.memory_snapshot import MemorySnapshot
    from litlab.callbacks.nan_guard import NaNGuard
    from litlab.callbacks.noise_scale import GradientNoiseScale
    from litlab.callbacks.optimizer_in_backward import OptimizerInBackward
    from litlab.callbacks.profile import StepProfiler
    from litlab.callbacks.progress import ProgressBar
    from litlab.callbacks.qat import QAT
    from litlab.callbacks.summary import RunSummary
    from litlab.callbacks.swa import SWA
    from litlab.callbacks.vram import VRAM

__all__ = [
    "AGC",
    "EMA",
    "QAT",
    "SWA",
    "VRAM",
    "ActivationCheckpointing",
    "Baselines",
    "BatchFinder",
    "Compile",
    "ConfusionMatrix",
    "FreeGradients",
    "Freeze",
    "FreezeRule",
    "GradNorms",
    "GradientNoiseScale",
    "LRFinder",
    "MemorySnapshot",
    "NaNGuard",
    "OptimizerInBackward",
    "ProgressBar",
    "RunSummary",
    "StepProfiler",
]

__getattr__ = export_lazily(__name__)
