"""Lightning callbacks and a profiler, one a file."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.callbacks.activation_checkpointing import ActivationCheckpointing
    from litlab.callbacks.attention_plot import AttentionPlot
    from litlab.callbacks.averaging import EMA, SWA
    from litlab.callbacks.compile import Compile
    from litlab.callbacks.evaluation import Baselines, ConfusionMatrix
    from litlab.callbacks.forecast_plots import ForecastPlots
    from litlab.callbacks.freeze import Freeze, FreezeRule
    from litlab.callbacks.gradients import AGC, GradNorms, OptimizerInBackward
    from litlab.callbacks.image_plots import ImagePlots, MaskPlots
    from litlab.callbacks.lr_finder import LRFinder
    from litlab.callbacks.memory import VRAM, MemorySnapshot
    from litlab.callbacks.nan_guard import NaNGuard
    from litlab.callbacks.noise_scale import GradientNoiseScale
    from litlab.callbacks.profiler import StepProfiler
    from litlab.callbacks.progress import ProgressBar
    from litlab.callbacks.qat import QAT
    from litlab.callbacks.summary import RunSummary
    from litlab.callbacks.text_samples import TextSamples

__getattr__ = export_lazily(__name__)
