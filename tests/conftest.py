"""For all tests: nothing is kept between processes, or read from what a user's processes have kept."""

from __future__ import annotations

import os

from eqsat.cache_folder import VARIABLE

os.environ[VARIABLE] = ""
