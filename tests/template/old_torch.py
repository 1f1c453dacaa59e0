"""Whether this torch is one whose exporters can do less, as docs/deploy.md says."""

import torch
from packaging.version import Version

OLD_TORCH = Version(torch.__version__) < Version("2.12")
