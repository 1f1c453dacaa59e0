"""Texts longer than the model reads at once: cut, or a piece at random."""

import logging

import numpy as np
import torch

from tests.litlab.data.text.conftest import TextRecorder


def test_long_texts_are_cut_counted_and_reported_once(csv_data, make_trainer, caplog):
    data, model = csv_data(max_tokens=6), TextRecorder()
    with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"):
        trainer = make_trainer(max_epochs=2)
        trainer.fit(model, data)
        trainer.fit(model, data)
    whole = csv_data(max_tokens=1000)
    whole.setup("fit")
    texts = {tuple(row) for batch, _ in whole.train_dataloader() for row in batch["ids"].tolist()}
    count = sum(np.count_nonzero(row) > 6 for row in texts)
    said = [message for message in caplog.messages if "longer than" in message]
    assert said[1] == f"{count} of 80 training texts are longer than data.max_tokens (6) and are cut"
    assert [message.split()[3] for message in said] == ["validation", "training"]
    assert max(len(text) for text in model.ids("train")) == 6
    assert max(len(text) for text in model.ids("val")) == 6


def test_crops_are_random_in_training_and_whole_in_evaluation(csv_data, make_trainer, caplog):
    runs = []
    for _ in range(2):
        data, model = csv_data(max_tokens=6, long_texts="crop", batch_size=80), TextRecorder()
        with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"):
            make_trainer(max_epochs=8).fit(model, data)
        runs.append(model)
    assert not any("cut" in message for message in caplog.messages)
    assert max(map(len, runs[0].ids("val"))) > 6
    assert all(runs[0].ids("train", epoch) == runs[1].ids("train", epoch) for epoch in range(8))
    whole = csv_data()
    whole.setup("fit")
    sampler = data.train_dataloader().sampler
    stored = whole.samples("train")
    starts = set()
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for index, piece in zip(sampler.order.tolist(), runs[0].ids("train", epoch), strict=True):
            text = stored[torch.tensor([index])][0]["ids"][0].tolist()
            assert len(piece) == min(6, len(text))
            found = [i for i in range(len(text) - len(piece) + 1) if text[i : i + len(piece)] == piece]
            assert found  # a piece of this very text
            if len(text) == 10 and len(found) == 1:
                starts.add(found[0])
    assert starts == {0, 1, 2, 3, 4}


def test_a_crop_depends_on_seed_epoch_and_text_only(csv_data):
    """Not on the batch that the text is in."""
    data = csv_data(max_tokens=4, long_texts="crop")
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    texts, index = loader.dataset, torch.arange(80)

    def pieces(rows):
        return texts[rows][0]["ids"].tolist()

    first = pieces(index)
    assert [row for part in index.split(1) for row in pieces(part)] == [[i for i in row if i] for row in first]
    loader.sampler.set_epoch(1)
    assert pieces(index) != first
    loader.sampler.set_epoch(0)
    assert pieces(index) == first
    texts.crops.seed = 1
    assert pieces(index) != first
