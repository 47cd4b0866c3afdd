"""For all tests: nothing is kept between processes, or read from what a user's processes have kept.

Plans are made for one and the same machine, whatever the caches of the one at hand.
"""

from __future__ import annotations

import os

from eqsat.support.cache_folder import VARIABLE
from eqsat.targets import machine

os.environ[VARIABLE] = ""
machine.last_level_cache = lambda: None
