"""Time series: your own and public ones; checks, calendar, splits, windows, predictions."""
