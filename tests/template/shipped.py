"""What is shipped, by name: these tests look at nothing else, so that they don't judge what a team adds."""

from tests.conftest import CONFIGS, PACKAGE

NAMES = (
    "cifar", "cifar_vgg", "forecast", "forecast_ensemble", "forecast_small", "linear", "maml", "mlp", "tabular", "text",
    "transfer",
)  # fmt: skip
EXPERIMENTS = [CONFIGS / f"{name}.yaml" for name in NAMES]
IS_WHOLE = PACKAGE == "project" and all(config.is_file() for config in EXPERIMENTS)
