"""Seeds of property tests whose cases are too slow or too stateful for Hypothesis, within a budget of seconds."""

import os
import secrets
import time
from collections.abc import Iterator


def random_seeds() -> Iterator[int]:
    """Yield seeds until AUDITLAKE_PROPERTY_S seconds (default 1) have passed, at least one; print seed and count.

    AUDITLAKE_PROPERTY_SEED repeats a run from its first seed; Hypothesis then draws the same cases each time, too.
    """
    budget_s = float(os.environ.get("AUDITLAKE_PROPERTY_S", "1"))
    first = int(os.environ.get("AUDITLAKE_PROPERTY_SEED") or secrets.randbelow(2**32))
    end = time.monotonic() + budget_s
    count = 0
    while not count or time.monotonic() < end:
        print(f"history {count + 1}, AUDITLAKE_PROPERTY_SEED={first + count}")  # noqa: T201 - shown if the test fails
        yield first + count
        count += 1
    print(f"{count} histories from seed {first} in {budget_s:g} s")  # noqa: T201
