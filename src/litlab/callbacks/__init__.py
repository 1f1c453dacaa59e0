"""Lightning callbacks and a profiler, one a file."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.callbacks.activation_checkpointing import ActivationCheckpointing
    from litlab.callbacks.agc import AGC
    from litlab.callbacks.baselines import Baselines
    from litlab.callbacks.batch_finder import BatchFinder
    from litlab.callbacks.compile import Compile
    from litlab.callbacks.confusion_matrix import ConfusionMatrix
    from litlab.callbacks.ema import EMA
    from litlab.callbacks.free_gradients import FreeGradients
    from litlab.callbacks.freeze import Freeze, FreezeRule
    from litlab.callbacks.grad_norms import GradNorms
    from litlab.callbacks.lr_finder import LRFinder
    from litlab.callbacks.memory_snapshot import MemorySnapshot
    from litlab.callbacks.model_summary import ModelSummary
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
    "ModelSummary",
    "NaNGuard",
    "OptimizerInBackward",
    "ProgressBar",
    "RunSummary",
    "StepProfiler",
]

__getattr__ = export_lazily(
    __name__,
    {
        "AGC": "litlab.callbacks.agc",
        "ActivationCheckpointing": "litlab.callbacks.activation_checkpointing",
        "Baselines": "litlab.callbacks.baselines",
        "BatchFinder": "litlab.callbacks.batch_finder",
        "Compile": "litlab.callbacks.compile",
        "ConfusionMatrix": "litlab.callbacks.confusion_matrix",
        "EMA": "litlab.callbacks.ema",
        "FreeGradients": "litlab.callbacks.free_gradients",
        "Freeze": "litlab.callbacks.freeze",
        "FreezeRule": "litlab.callbacks.freeze",
        "GradNorms": "litlab.callbacks.grad_norms",
        "GradientNoiseScale": "litlab.callbacks.noise_scale",
        "LRFinder": "litlab.callbacks.lr_finder",
        "MemorySnapshot": "litlab.callbacks.memory_snapshot",
        "ModelSummary": "litlab.callbacks.model_summary",
        "NaNGuard": "litlab.callbacks.nan_guard",
        "OptimizerInBackward": "litlab.callbacks.optimizer_in_backward",
        "ProgressBar": "litlab.callbacks.progress",
        "QAT": "litlab.callbacks.qat",
        "RunSummary": "litlab.callbacks.summary",
        "SWA": "litlab.callbacks.swa",
        "StepProfiler": "litlab.callbacks.profile",
        "VRAM": "litlab.callbacks.vram",
    },
)
