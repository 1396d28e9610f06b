"""A check of the Python package on a store in memory, as often as the argument says."""

import gc
import sys

from ratekeeper import Limiter, Rule, Store

KEYS = [f"user:tenant-00000042:id={number:08}" for number in range(1_000)]
PLENTY = "100000/d"


def main(iterations: int) -> None:
    """Asks for one key after the other; all are let in."""
    limiter = Limiter(Store.memory(), Rule("per-user", PLENTY))
    check = limiter.check
    # Its turn would come at another time with every change to what is imported.
    gc.disable()
    for _ in range(iterations // len(KEYS)):
        for key in KEYS:
            if not check(key):
                raise AssertionError(f"{key} was denied")


main(int(sys.argv[1]))
