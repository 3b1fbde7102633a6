"""What the fork server of a storm imports for all ranks: hocket, with its failpoints.

Each rank is a fork of it, and one that looked for garbage among what it has inherited would copy all those pages.
"""

import gc

import in_rank  # noqa: F401
import judge  # noqa: F401
import regroup  # noqa: F401
import workloads  # noqa: F401

import hocket.group
import hocket.plans.algorithms  # noqa: F401
import worlds  # noqa: F401

gc.collect()
gc.freeze()
