"""Note when each transaction arrives at a subscriber of a lake's changes: feed_arrivals.py LAKE COUNT FILE."""

import json
import sys
import time
from pathlib import Path

import auditlake


def main() -> None:
    """Write the machine's monotonic time of each row's arrival, by its id; the file READY appears first."""
    lake, count, file = sys.argv[1:]
    arrived: dict[str, float] = {}
    with auditlake.changes(lake) as feed:
        Path(f"{file}.ready").touch()
        while len(arrived) < int(count):
            for transaction in feed.take(60):
                now = time.monotonic()
                arrived |= {str(change.key["id"]): now for change in transaction.changes}
    Path(file).write_text(json.dumps(arrived))


if __name__ == "__main__":
    main()
