"""Two workers share two cores: numpy, torch and the processes that the tests start have one thread
each.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when they are imported
