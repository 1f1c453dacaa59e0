"""The public series."""

from project.data.etth1 import ETTh1Data


def test_etth1_has_the_published_split():
    assert ETTh1Data.public.ends == (8640, 11520, 14400)
    assert ETTh1Data().num_targets == 7
    digest = "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"
    assert ETTh1Data.public.digest == f"sha256:{digest}"
