"""Plots of the reference experiments."""

from project.callbacks.forecast_plots import ForecastPlots
from project.callbacks.image_plots import ImagePlots
from project.callbacks.text_samples import TextSamples

__all__ = ["ForecastPlots", "ImagePlots", "TextSamples"]
