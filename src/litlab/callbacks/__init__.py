"""Lightning callbacks and a profiler, one a file."""

from litlab.callbacks.baselines import Baselines
from litlab.callbacks.compile import Compile
from litlab.callbacks.confusion_matrix import ConfusionMatrix
from litlab.callbacks.ema import EMA
from litlab.callbacks.freeze import Freeze, FreezeRule
from litlab.callbacks.model_summary import ModelSummary
from litlab.callbacks.nan_guard import NaNGuard
from litlab.callbacks.profile import StepProfiler
from litlab.callbacks.progress import ProgressBar
from litlab.callbacks.summary import RunSummary
from litlab.callbacks.swa import SWA
from litlab.callbacks.vram import VRAM

__all__ = [
    "EMA",
    "SWA",
    "VRAM",
    "Baselines",
    "Compile",
    "ConfusionMatrix",
    "Freeze",
    "FreezeRule",
    "ModelSummary",
    "NaNGuard",
    "ProgressBar",
    "RunSummary",
    "StepProfiler",
]
