"""ETTh1."""

from litlab.data import PublicSeries, SeriesData


class ETTh1Data(SeriesData):
    """ETTh1 (Zhou et al. 2021, arXiv:2012.07436): hourly load and oil temperature of a
    transformer.
    """

    public = PublicSeries(
        url="https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv",
        name="ETTh1.csv",
        digest="sha256:f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        columns=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
        # The split of all published comparisons: 12, 4 and 4 months of 30 days; the rows after them
        # are not used.
        ends=(12 * 30 * 24, 16 * 30 * 24, 20 * 30 * 24),
    )
