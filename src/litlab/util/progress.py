"""How far a longer piece of work is."""

from functools import partial

from tqdm import tqdm

# Only where the work takes longer than two seconds, and only on a terminal.
progress_bar = partial(tqdm, delay=2, disable=None)
