"""Lightning callbacks, one a file."""

from project.callbacks.compile import Compile
from project.callbacks.ema import EMA
from project.callbacks.image_plots import ImagePlots
from project.callbacks.progress import ProgressBar
from project.callbacks.summary import RunSummary
from project.callbacks.vram import VRAM

__all__ = ["EMA", "VRAM", "Compile", "ImagePlots", "ProgressBar", "RunSummary"]
