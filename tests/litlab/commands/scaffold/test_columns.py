"""Listings after a renaming: what stood below each other does so again."""

import pytest

from litlab.commands.scaffold.columns import in_columns

LISTING = """\
Two  spaces in lore stay two.

```text
src/lore/net.py         a network
config.yaml             its config
tests/lore/test_net.py  its test

data/                   its files
make it                 # or lore
```

```bash
lore    # alone
lore --help  # nothing below
#   lore in a comment
```
"""
SHORTER = """\
Two  spaces in lo stay two.

```text
src/lo/net.py           a network
config.yaml             its config
tests/lo/test_net.py    its test

data/                   its files
make it                 # or lo
```

```bash
lo      # alone
lo --help  # nothing below
#   lo in a comment
```
"""
LONGER = """\
Two  spaces in folklore stay two.

```text
src/folklore/net.py         a network
config.yaml                 its config
tests/folklore/test_net.py  its test

data/                       its files
make it                     # or folklore
```

```bash
folklore  # alone
folklore --help  # nothing below
#   folklore in a comment
```
"""


@pytest.mark.parametrize(("name", "after"), [("lo", SHORTER), ("folklore", LONGER), ("lore", LISTING)])
def test_columns_are_columns_again(name, after):
    assert in_columns(LISTING, LISTING.replace("lore", name)) == after
