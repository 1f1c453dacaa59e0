"""``python -m auks``: the commands of this package's experiments."""

from litlab.cli import main

if __name__ == "__main__":
    main(package=__package__)
