"""Stand-in data must be learned: what is simple does badly, what is not does better, nothing is
perfect.
"""

import pytest

from litlab.data import ImageData, TabularData, TextData
from tests.litlab.data.conftest import prepared, refusal


@pytest.mark.parametrize(
    ("kind", "settings", "least", "most"),
    [
        (ImageData, {"image_size": (16, 16)}, 0.05, 0.15),  # by chance 0.1
        (TextData, {}, 0.6, 0.9),
        (TabularData, {"target": "churn"}, 0.7, 0.9),
    ],
)
def test_baselines(monkeypatch, said, kind, settings, least, most):
    monkeypatch.setattr("litlab.data.generated.IMAGES", {"train": 2000, "test": 500})
    monkeypatch.setattr("litlab.data.generated.TEXTS", {"train": 1000, "test": 300})
    data = prepared(kind("generated", **settings), "fit")
    assert least < [*data.baselines().values()][-1]["test/acc"] < most
    assert data.fingerprint == kind("generated", **settings).fingerprint
    assert data.description.startswith(f"GENERATED {data.kind}: ")
    assert not any("warning" in line for line in said)


@pytest.mark.parametrize("kind", [ImageData, TextData])
@pytest.mark.parametrize("setting", ["group_column", "split_column"])
def test_columns_that_made_up_data_lacks_are_refused(kind, setting):
    message = refusal(prepared, kind("generated", **{setting: "patient"}))
    assert "there is no column 'patient'" in message
    assert message.endswith("leave out the setting that names it")
