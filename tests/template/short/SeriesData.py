"""Small windows of a small series, for forecast_small.yaml."""

from tests.template.short.ETTh1Data import settings as settings
