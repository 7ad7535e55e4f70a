"""How far a lake is: what may be asked of it. Reads only, no JVM.

The watermark is the commit LSN of the last complete transaction in `changes`; what has been acknowledged to
PostgreSQL may be further on, because nothing for us lies between. A time can be asked for up to `current_us`: the
capture promises that every later commit gets a later `time_mono`.

Capture writes the positions with almost every commit, so the last entries of the log tell them. Only where they do not
is the table opened, for which deltalake must be loaded: that takes longer than all the rest.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Transaction Identifiers"
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lsn import Lsn

_ENTRY = re.compile(r"(\d{20})\.json")
_APPS = (CHANGES_APP, ACKNOWLEDGED_APP, CURRENT_APP)
_ENTRIES_AT_MOST = 32


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of `changes` at one Delta version of it; all inclusive. `current_us` is microseconds since 1970."""

    delta_version: int
    watermark: Lsn
    acknowledged: Lsn
    current_us: int

    @property
    def known_lsn(self) -> Lsn:
        """The highest LSN for which the lake knows every commit; one may start exactly at `acknowledged`."""
        return Lsn(max(self.watermark, self.acknowledged - 1))


def read_positions(lake: Lake) -> Positions | None:
    """Read the positions; None where capture has never started."""
    found = _from_entries(lake.changes / "_delta_log") or _from_table(lake.changes)
    if found is None:
        return None
    version, positions = found
    if CHANGES_APP not in positions or ACKNOWLEDGED_APP not in positions:
        return None
    watermark, acknowledged = Lsn(positions[CHANGES_APP]), Lsn(positions[ACKNOWLEDGED_APP])
    return Positions(version, watermark, acknowledged, positions.get(CURRENT_APP, 0))


def _from_entries(log: Path) -> tuple[int, Mapping[str, int]] | None:
    """Read version and positions from the last entries of a table's log; None where those do not hold all of them."""
    positions: dict[str, int] = {}
    try:
        entries = (_ENTRY.fullmatch(file.name) for file in log.iterdir())
        versions = sorted((int(entry[1]) for entry in entries if entry), reverse=True)
        for version in versions[:_ENTRIES_AT_MOST]:
            # Of two entries the later holds; an older one is read only for what later ones do not say.
            positions = {**dict(_moved(log / f"{version:020}.json")), **positions}
            if positions.keys() >= set(_APPS):
                return versions[0], positions
    except FileNotFoundError:  # no table, or the entry was cleaned away behind a checkpoint
        return None
    return None


def _moved(entry: Path) -> Iterator[tuple[str, int]]:
    with entry.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"txn"'):
                moved = json.loads(line)["txn"]
                yield moved["appId"], moved["version"]


def _from_table(path: Path) -> tuple[int, Mapping[str, int]] | None:
    from auditlake.lake.log import open_delta  # noqa: PLC0415 - slow to load, and rarely needed

    table = open_delta(path)
    if table is None:
        return None
    found = {app: table.transaction_version(app) for app in _APPS}
    return table.version(), {app: version for app, version in found.items() if version is not None}
