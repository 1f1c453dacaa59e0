"""What a request may have, besides the size of its body, which is an option."""

PIXELS = 40_000_000
CHARACTERS = 100_000
SERIES_ROWS = 50_000
TABLE_ROWS = 1_000
SECONDS_TO_READ = 30.0  # a body
DROPPED = 10  # times the size that a body may have are read, if it comes, before its client is cut off
