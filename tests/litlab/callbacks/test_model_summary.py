import io

import pytest
import rich
import torch

from litlab.callbacks import ModelSummary
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Network(Tiny):
    def forward(self, images):
        return self.network(images)


@pytest.mark.parametrize(("example", "width"), [(False, 100), (True, 100), (False, 30), (True, 30)])
def test_flops_only_where_they_were_counted(tmp_path, monkeypatch, example, width):
    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", rich.console.Console(file=out, width=width))
    model = Network()
    if example:
        model.example_input_array = torch.zeros(2, 3, 8, 8)
    trainer = make_trainer(tmp_path, enable_model_summary=True, callbacks=[ModelSummary()], fast_dev_run=True)
    trainer.fit(model, TinyData())
    text = " ".join(out.getvalue().split())
    assert f"{sum(p.numel() for p in model.parameters())} parameters" in text
    assert "Sequential" in text
    assert ("FLOPs for the example input" in text) == example
    assert ("FLOPs" in text) == example
    assert ("2, 3, 8, 8" in text) == (example and width == 100)
