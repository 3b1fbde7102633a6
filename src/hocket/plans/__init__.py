"""What moves: plans, their proofs and their pictures. No process, and no core.

The words of an algorithm are here; `plan.py` says what they mean.
"""

from .plan import Front, Plan, copy, inp, out, reduce, tmp

__all__ = ["Front", "Plan", "copy", "inp", "out", "reduce", "tmp"]
