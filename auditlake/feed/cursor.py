"""Cursor: the place of a subscriber in the feed of one source, as text.

`7486193712053354519:0/16B3748` is the system identifier of the PostgreSQL server and the commit LSN of the last
transaction that was delivered. The system identifier prevents that a cursor of one database is used on the lake of
another, where its LSN would skip transactions silently. The LSN alone is the position because commits have one order.
"""

from dataclasses import dataclass

from auditlake.errors import BadUsage, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place after the transaction with commit LSN `lsn`."""

    system_identifier: str
    lsn: Lsn

    def __str__(self) -> str:
        return f"{self.system_identifier}:{self.lsn}"


def parse_cursor(text: str, lake: Lake) -> Lsn:
    """Return the LSN of a cursor of this lake.

    Raises BadUsage if the text is no cursor, WrongSource if it belongs to another source.
    """
    system, colon, lsn = text.partition(":")
    try:
        position = Lsn.parse(lsn)
    except ValueError as exc:
        raise BadUsage(f"{text!r} is not a cursor: {exc}", "Pass the cursor that a transaction had.") from None
    if not colon or not system.isdigit():
        raise BadUsage(f"{text!r} is not a cursor, need SYSTEM:LSN", "Pass the cursor that a transaction had.")
    recorded = require_manifest(lake).system_identifier
    if system != recorded:
        raise WrongSource(
            f"the cursor belongs to the source with system identifier {system}, this lake records {recorded}",
            "Use the lake that the cursor came from, or start without a cursor.",
        )
    return position
