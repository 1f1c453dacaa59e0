"""Tasks as LightningModules: losses, metrics and optimizers around any network."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.tasks.base import ExperimentModule
    from litlab.tasks.classifier import Classifier
    from litlab.tasks.forecaster import Forecaster
    from litlab.tasks.multilabel import MultilabelClassifier
    from litlab.tasks.regressor import Regressor

__getattr__ = export_lazily(__name__)
