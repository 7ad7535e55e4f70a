"""The offset of a new source: the least one with which its log is ahead of the lake."""

import pytest

from auditlake.lake.manifest import LSN_OFFSET_UNIT as UNIT
from auditlake.lake.manifest import Manifest
from auditlake.lsn import Lsn
from auditlake.resync.renewal import find_offset

KNOWN = Lsn(UNIT + 500)


@pytest.mark.parametrize(
    ("system", "recorded", "end", "expected"),
    [
        ("7", 0, UNIT + 501, 0),  # the slot was lost, and the log is ahead
        ("7", 0, UNIT + 500, UNIT),  # a commit record may start at the end of the log
        ("7", 0, 20, 2 * UNIT),  # restored
        ("7", UNIT, UNIT + 501, UNIT),  # the slot was lost again
        ("7", UNIT, UNIT + 20, 2 * UNIT),  # restored again
        ("8", UNIT, 2 * UNIT, UNIT),  # another cluster that needs the same offset
        ("8", UNIT, 2 * UNIT + 501, 0),  # another cluster that is ahead by itself
        ("8", 3 * UNIT, 3 * UNIT + 20, 2 * UNIT),
    ],
)
def test_the_least_offset_that_is_ahead(system: str, recorded: int, end: int, expected: int) -> None:
    """`end` is with the recorded offset; the same cluster keeps it as long as it is ahead."""
    before, now = (Manifest(name, 1, "shop", "s", "p", recorded) for name in ("7", system))
    offset = find_offset(before, now, Lsn(end), KNOWN)
    assert offset == expected
    assert end - recorded + offset > KNOWN
