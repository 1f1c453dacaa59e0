"""What a check says."""

from collections.abc import Callable, Iterator

OK, WARN, FAIL = "ok", "warn", "FAIL"
GIB = 2**30

Line = tuple[str, str]  # status; what there is, and after a semicolon what to do
Check = Callable[[], Iterator[Line]]
