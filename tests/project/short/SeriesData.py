"""Small windows of a small series, for forecast_small.yaml."""

from tests.project.short.ETTh1Data import settings as settings
