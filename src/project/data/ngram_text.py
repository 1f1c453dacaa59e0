"""Texts with n-gram features: what the words and phrases of a text say about its class, beside each token."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from typing_extensions import override

from litlab.data import find_corruption, new_cache, open_array
from litlab.data.text import TextData, TextMetadata, TextServing, classification_scores
from litlab.errors import UserError
from project.data.ngram_features import NgramCounts, count_ngrams
from project.data.ngram_model import ngram_model
from project.data.ngram_serving import NgramServing


@dataclass(frozen=True)
class NgramMetadata(TextMetadata):
    """Metadata of texts with n-gram features.

    Args:
        ngrams: Longest n-gram; 0 for none.
        counts: Tensors of the `NgramCounts` of the training texts; None without n-grams.
    """

    ngrams: int = 0
    counts: dict[str, Any] | None = None


class NgramTextData(TextData):
    """A `TextData` whose batches also give n-gram features of each token.

    Inputs have ``ngram_features``, float32 of shape (batch, time, feature), where `ngrams` is above 0: the class
    log-ratios of the n-grams that begin there, see `project.data.ngram_features`.

    Args:
        *arguments: As of `TextData`.
        ngrams: Longest n-gram whose class log-ratios are given for each token (Wang & Manning 2012); 0 for none.
        **settings: As of `TextData`.
    """

    metadata_type = NgramMetadata
    trained_settings: ClassVar[tuple[str, ...]] = (*TextData.trained_settings, "ngrams")

    def __init__(self, *arguments: Any, ngrams: int = 0, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if not 0 <= ngrams <= 5:
            raise UserError(f"data.ngrams: {ngrams} is not valid; it must be from 0 to 5")

    @property
    def ngram_features(self) -> int:
        """N-gram features per token: orders times classes."""
        orders = self.setting("ngrams")
        return orders * self.num_classes if orders else 0

    @property
    def _ngram_folder(self) -> Path:
        return self.cache_folder.with_name(f"{self.cache_folder.name}-ngrams{self.hparams['ngrams']}")

    @override
    def caches(self) -> dict[Path, Callable[[Path], None]]:
        return super().caches() | ({self._ngram_folder: self._count} if self.hparams["ngrams"] else {})

    def _count(self, folder: Path) -> None:
        stored, orders = self.stored, self.hparams["ngrams"]
        ids, offsets, labels = (stored.array("train", kind) for kind in ("ids", "offsets", "labels"))
        classes = len(stored.class_names)
        with new_cache(folder, 2 * len(ids) * orders * classes) as staging:
            counts, features = count_ngrams(ids, offsets, labels, classes, orders)
            np.save(staging / "train.npy", features)
            counts.save(staging)

    @override
    def open(self, stage: str | None) -> NgramMetadata:
        metadata, orders = super().open(stage), self.hparams["ngrams"]
        counts = NgramCounts.load(self._ngram_folder, orders).state_dict() if orders else None
        return NgramMetadata(**metadata.state_dict(), ngrams=orders, counts=counts)

    @override
    def token_features(self, ids: np.ndarray, offsets: np.ndarray, split: str) -> dict[str, np.ndarray]:
        metadata = self.known_metadata
        assert isinstance(metadata, NgramMetadata)
        if metadata.counts is None:
            return {}
        if split != "train":
            counts = NgramCounts.from_state_dict(metadata.counts)
            return {"ngram_features": counts.features(ids, offsets)}
        if metadata.tokenizer != self.stored.tokenizer or self.hparams["ngrams"] != metadata.ngrams:
            raise UserError(
                "data: the checkpoint was trained with n-gram features of other texts or settings, so training can't "
                "continue with these; use the data and data settings of its run"
            )
        return {"ngram_features": open_array(self._ngram_folder / "train.npy")}

    @override
    def serving(self) -> TextServing:
        metadata = self.known_metadata
        assert isinstance(metadata, NgramMetadata)
        if metadata.counts is None:
            return super().serving()
        return NgramServing(metadata, NgramCounts.from_state_dict(metadata.counts))

    @override
    def baselines(self) -> dict[str, dict[str, float]]:
        if not self.has_test:
            return {}
        stored = self.stored
        scores = classification_scores(self._ngram_predictions(), stored.array("test", "labels"))
        return {"n-gram model": scores, **super().baselines()}

    def _ngram_predictions(self) -> np.ndarray:
        """Classes of the test texts by an n-gram model; computed once, then from a cache beside that of the texts.

        It learns from the training split alone, as the network does, and has its own full vocabulary.
        """
        stored = self.stored
        folder = stored.folder.with_name(f"{stored.folder.name}-ngram-model")
        if find_corruption(folder):
            train, test = stored.texts("train"), stored.texts("test")
            rank_zero_info(f"Training an n-gram model on the {len(train):,} training texts, to compare with.")
            predictions = ngram_model(train, stored.array("train", "labels"), test, len(stored.class_names))
            with new_cache(folder, predictions.nbytes) as staging:
                np.save(staging / "test.npy", predictions)
        return open_array(folder / "test.npy")
