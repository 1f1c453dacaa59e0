"""Lightning callbacks and a profiler, one a file."""

from project.callbacks.baselines import Baselines
from project.callbacks.compile import Compile
from project.callbacks.confusion_matrix import ConfusionMatrix
from project.callbacks.ema import EMA
from project.callbacks.forecast_plots import ForecastPlots
from project.callbacks.image_plots import ImagePlots
from project.callbacks.model_summary import ModelSummary
from project.callbacks.profile import StepProfiler
from project.callbacks.progress import ProgressBar
from project.callbacks.summary import RunSummary
from project.callbacks.text_samples import TextSamples
from project.callbacks.vram import VRAM

__all__ = [
    "EMA",
    "VRAM",
    "Baselines",
    "Compile",
    "ConfusionMatrix",
    "ForecastPlots",
    "ImagePlots",
    "ModelSummary",
    "ProgressBar",
    "RunSummary",
    "StepProfiler",
    "TextSamples",
]
