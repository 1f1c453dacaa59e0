"""SegmentRNN, against the same written out, and the normalisation and skip around it."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn

from project.networks.segment_rnn import SegmentRNN
from project.networks.window_forecast import WindowForecast


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("cell", "units"), [("lstm", None), ("gru", 0)])
def test_plain_form_is_a_recurrent_layer_and_a_head_of_any_size(cell, units):
    network = SegmentRNN(
        context_length=9, horizon=4, num_targets=3, cell=cell, hidden_size=8,
        head_hidden_size=units,
    )  # fmt: skip
    plain = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](3, 8, batch_first=True)
    plain.load_state_dict(network.rnn.state_dict())
    past = torch.randn(5, 9, 3)
    last = plain(past)[0][:, -1]
    *hidden, head = [layer for layer in network.decoder.modules() if isinstance(layer, nn.Linear)]
    assert len(hidden) == (units is None)
    for layer in hidden:
        last = layer(last).relu()
    torch.testing.assert_close(network(past), head(last).view(5, 4, 3, 1))


PARALLEL = partial(SegmentRNN, horizon=7, segment_length=4, decoder="parallel")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_parallel_decoding_is_one_step_per_segment_and_channel(cell):
    network = PARALLEL(
        context_length=8, num_targets=3, cell=cell, hidden_size=6, num_layers=2,
        channel_independent=True,
    )  # fmt: skip
    past = torch.randn(2, 8, 3)
    forecast = network(past)
    for sample, channel in itertools.product(range(2), range(3)):
        segments = past[sample, :, channel].view(1, 2, 4)
        _, state = network.rnn(network.embed(segments))
        pieces = []
        for step in range(2):
            query = torch.cat([network.decoder.position[step], network.decoder.channel[channel]])
            out, _ = network.rnn(query.view(1, 1, 6), state)
            pieces.append(network.decoder.head(out.flatten()))
        torch.testing.assert_close(forecast[sample, :, channel, 0], torch.cat(pieces)[:7])


@pytest.mark.parametrize("independent", [True, False])
def test_covariates_of_a_segment_is_for_that_segment(independent):
    network = PARALLEL(
        context_length=10, num_targets=2, num_covariates=2, hidden_size=8,
        channel_independent=independent,
    )  # fmt: skip
    past, covariates = torch.randn(3, 10, 2), torch.randn(3, 17, 2)
    forecast = network(past, covariates)
    # The first row is in no whole segment, and one of the past counts for all
    for row, changes in ((0, []), (9, range(7)), (10, range(4)), (13, range(4)), (16, [4, 5, 6])):
        other = covariates.clone()
        other[1, row] += 1
        changed = (network(past, other) != forecast).flatten(2).any(dim=2)
        assert changed.nonzero().tolist() == [[1, step] for step in changes]  # no other window


@pytest.mark.parametrize("instance_norm", ["none", "subtract_last", "subtract_mean", "revin"])
def test_a_forecast_of_nothing_is_the_level_and_a_skip_a_linear_map_of_the_last_rows(instance_norm):
    rows = 5
    network = WindowForecast(rows, 4, instance_norm, "ridge")
    network.forecast = lambda past, covariates: past.new_zeros(len(past), 4, past.shape[2], 3)
    weight = torch.rand(4, rows).softmax(dim=1)
    past = torch.randn(5, 8, 2) + 3
    mean, last = past[:, -rows:].mean(dim=1), past[:, -1]
    level = {"none": 0 * last, "subtract_last": last}.get(instance_norm, mean)
    torch.testing.assert_close(network(past), level[:, None, :, None].expand(-1, 4, -1, 3))
    assert not network.skip.is_set
    network.skip.set(weight)
    assert network.skip.is_set
    expected = (weight @ past[:, -rows:]).unsqueeze(-1).expand(-1, -1, -1, 3)
    torch.testing.assert_close(network(past), expected)


def test_the_network_sees_windows_of_deviation_1():
    network = WindowForecast(8, 1, "revin", "none")
    network.forecast = lambda past, covariates: past.std(dim=1, correction=0)[:, None, :, None]
    past = 7 * torch.randn(5, 8, 2)
    expected = past.std(dim=1, correction=0) + past.mean(dim=1)
    torch.testing.assert_close(network(past)[:, 0, :, 0], expected, rtol=1e-3, atol=1e-3)
