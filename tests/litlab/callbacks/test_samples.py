import pytest
import torch

from litlab.callbacks.reporting.samples import spread
from litlab.callbacks.reporting.tables import write_rows


def keep(wanted, sizes, known=True):
    """Positions in the whole test of the samples kept."""
    kept, first = [], 0
    for batch, size in enumerate(sizes):
        chosen = spread(wanted, len(kept), batch, len(sizes) if known else float("inf"), size)
        kept += (first + chosen).tolist()
        first += size
    return kept


@pytest.mark.parametrize("wanted", [1, 3, 4, 10, 40])
@pytest.mark.parametrize("sizes", [[40], [10] * 4, [1] * 40, [13, 14, 13]])
def test_as_many_as_wanted_and_evenly(wanted, sizes):
    kept = keep(wanted, sizes)
    assert len(set(kept)) == len(kept) == min(wanted, 40)
    assert kept == sorted(kept)
    if wanted >= 4 and len(sizes) == 40:
        gaps = torch.tensor(kept).diff()
        assert gaps.max() - gaps.min() <= 1


def test_no_more_than_there_are():
    assert keep(50, [7, 3]) == list(range(10))


def test_unknown_number_of_batches_takes_the_first():
    assert keep(3, [2, 2, 2], known=False) == [0, 1, 2]


def test_numbers_in_files(tmp_path):
    write_rows(tmp_path / "a.csv", ["a", "b"], [["x, y", 1], [1 / 3, float("nan")], [1e9, "ä"]])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").splitlines() == [
        "a,b",
        '"x, y",1',
        "0.333333,",
        "1e+09,ä",
    ]
