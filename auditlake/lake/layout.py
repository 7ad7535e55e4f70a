"""Layout of a lake's folder: paths of files and tables, and names of application transactions.

    <root>/lake.json  capture.json  apply.json  publication.json  ddl_trigger.json  histories.json
    <root>/looks/<schema>/<table>.json
    <root>/parked/<schema>/<table>.<cause>.json
    <root>/partitions/<schema>.<table>.json
    <root>/shapes/<schema>.<table>.json
    <root>/locks/<stage>.lock
    <root>/resync/<schema>/<table>/
    <root>/changes/  relations/  added/  transactions/  gaps/  history/<schema>/<table>/
    <root>/ledger/entries/  blocks/  next.json
    <root>/holds/<number>.json  erasures/<number>.json  token.key  returned.json  retention.json  expiries/<number>.json

A source name becomes one path segment by escaping every byte outside [a-z0-9_-] as `~` and two hex digits; `~` is legal
in paths and URIs without escaping, so no layer escapes it again. Upper case is escaped because some file systems do not
distinguish `Orders` from `orders`. A leading `_` is escaped because readers treat such folders as internal
(`_delta_log`) or skip them. Both names of a table in one file name may be too long for that: then they are `~~` and
base 32, which needs 8 characters for 5 bytes.
"""

from base64 import b32decode, b32encode
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from auditlake.errors import BadUsage
from auditlake.relation import TableName
from auditlake.store.files import list_folders
from auditlake.store.place import Place, begun_again, begun_session
from auditlake.store.session import Session

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_STEM, _BASE_32 = 200, "~~"  # file names have 255 bytes, also temporary ones

CHANGES_APP = "auditlake/changes"
"""Application transaction of `changes`: the watermark, a commit LSN."""
ACKNOWLEDGED_APP = "auditlake/acknowledged"
"""Application transaction of `changes`: no LSN above it was ever acknowledged to PostgreSQL."""
CURRENT_APP = "auditlake/current"
"""Application transaction of `changes`: every commit up to this time, in microseconds since 1970, is in `changes`."""
TRANSACTIONS_APP = "auditlake/transactions"
"""Application transaction of `transactions`: the commit LSN up to which it is complete."""
HISTORY_APP = "auditlake/history"
"""Application transaction of a history table: its position, a commit LSN."""
SNAPSHOT_APP = "auditlake/snapshot"
"""Application transaction of a history table: the LSN of its first snapshot, and its horizon if none is set."""
EXPIRED_APP = "auditlake/expired"
"""Application transaction of a history table: its horizon if versions have expired; of the log, if rows have."""
ERASED_APP = "auditlake/erased"
"""Application transaction of a history table, and of the log: the number of the last erasure of its values."""
SNAPSHOT_TIME_APP = "auditlake/snapshot_time"
"""Application transaction of a history table: the server's time, in us since 1970, just after its horizon was fixed."""
RESYNC_APP = "auditlake/resync"
"""Application transaction of a history table: the LSN of the last snapshot that it was compared with."""
LEDGER_APP = "auditlake/ledger"
"""Application transaction of the ledger's tables: the number of the last block."""


def path_segment(name: str) -> str:
    """Convert a source name to one path segment, reversibly."""
    segment = "".join(chr(b) if b in _PLAIN else f"~{b:02x}" for b in name.encode())
    return f"~5f{segment[1:]}" if segment.startswith("_") else segment


def source_name(segment: str) -> str:
    """Convert a path segment back to the source name."""
    head, *escaped = segment.split("~")
    if not escaped:
        return head
    return b"".join([head.encode(), *(bytes.fromhex(e[:2]) + e[2:].encode() for e in escaped)]).decode()


class _Below:
    """A place below the root of a lake."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, lake: "Lake", _: type) -> Path:
        place = lake.root
        for name in self._names:
            place = place / name
        return place


@dataclass(frozen=True, slots=True)
class Lake:
    """Places in a lake's folder, which is absolute.

    In an object store they are `store.place.Remote`, which has the part of Path's interface that a lake needs: other
    operations are functions of `store.files`, which take both.
    """

    root: Path
    session: Session = field(init=False, compare=False, repr=False)
    """Cache of this process for the lake, from here on."""
    manifest = _Below("lake.json")
    capture_state = _Below("capture.json")
    last_batch = _Below("apply.json")
    known_histories = _Below("histories.json")
    publication = _Below("publication.json")
    ddl_trigger = _Below("ddl_trigger.json")
    mask_rules = _Below("masks.json")
    masks = _Below("masks")
    changes = _Below("changes")
    relations = _Below("relations")
    added = _Below("added")
    transactions = _Below("transactions")
    gaps = _Below("gaps")
    holds = _Below("holds")
    """The folder with the additions and releases of legal holds."""
    expiries = _Below("expiries")
    """The folder with the records of what retention removed."""
    retention = _Below("retention.json")
    """The file that records for which place it was confirmed that versions may expire."""
    erasures = _Below("erasures")
    """The folder with the records of erasures."""
    returned_rows = _Below("returned.json")
    """The file that records which erased rows the last search found in the lake again."""
    token_key = _Below("token.key")
    """The file with the secret of tokens that stand for keys of rows."""
    histories = _Below("history")
    ledger = _Below("ledger")
    ledger_entries = _Below("ledger", "entries")
    ledger_blocks = _Below("ledger", "blocks")
    next_block = _Below("ledger", "next.json")
    """The file with the key and the bounds of a block that is being sealed."""
    all_parked = _Below("parked")
    partitions = _Below("partitions")
    shapes = _Below("shapes")

    def __post_init__(self) -> None:
        place: Place = self.root
        object.__setattr__(self, "session", begun_session(place))

    @property
    def own_tables(self) -> tuple[Place, ...]:
        """Return the Delta tables that capture writes."""
        return self.changes, self.relations, self.added, self.transactions, self.gaps

    @property
    def ledger_tables(self) -> tuple[Place, Place]:
        """Return the Delta tables of the ledger."""
        return self.ledger_entries, self.ledger_blocks

    def begun_again(self) -> "Lake":
        """Return the same place with a session that knows nothing of it."""
        return Lake(cast("Path", begun_again(self.root)))  # as the root of every lake

    @classmethod
    def at(cls, location: str | Path) -> "Lake":
        """Name a lake as a user does: a path, or the URL of a folder in an object store; raises BadUsage."""
        from auditlake.config import lake_place  # noqa: PLC0415 - only where no settings were read

        try:
            return cls(lake_place(location))
        except ValueError as exc:
            raise BadUsage(f"lake {exc}", "Name a folder, or s3://bucket/folder.") from None

    def masks_of(self, oid: int) -> Path:
        """Return the file that records the masks of the table with this OID."""
        return self.masks / f"{oid}.json"

    def history(self, name: TableName) -> Path:
        """Return the folder of one table's history."""
        return self.histories / path_segment(name.schema) / path_segment(name.table)

    def history_names(self, schemas: Collection[str] = ()) -> list[TableName]:
        """Return the names of all history tables, sorted; one without a position has not been completely copied.

        In a store, the folders of `schemas` are listed without waiting for the listing that shows them.
        """
        folders = list_folders(self.histories, list(map(path_segment, schemas)))
        return [TableName(*map(source_name, folder)) for folder in sorted(folders)]

    def look(self, name: TableName) -> Path:
        """Return the file with the last catalog snapshot of one table."""
        return self.root / "looks" / path_segment(name.schema) / f"{path_segment(name.table)}.json"

    def parked(self, name: TableName, cause: str) -> Path:
        """Return the file that records the LSN after which one table is not followed, for this cause."""
        return self.all_parked / path_segment(name.schema) / f"{path_segment(name.table)}.{cause}.json"

    def copied_again(self, name: TableName) -> Path:
        """Return the folder of one table's new snapshot while it is compared with the history."""
        return self.root / "resync" / path_segment(name.schema) / path_segment(name.table)

    def partitions_of(self, name: TableName) -> Path:
        """Return the file that records the partitions of one table."""
        return self.partitions / f"{_stem(name)}.json"

    def shape(self, name: TableName) -> Path:
        """Return the file that records the shape of one table."""
        return self.shapes / f"{_stem(name)}.json"

    def shape_names(self) -> list[TableName]:
        """Return the tables whose shapes are recorded, sorted."""
        return _names_of(self.shapes)

    def partitioned_names(self) -> list[TableName]:
        """Return the tables whose partitions are recorded, sorted."""
        return _names_of(self.partitions)


def _stem(name: TableName) -> str:
    """Convert the names of a table to the stem of one file name, reversibly."""
    stem = f"{path_segment(name.schema)}.{path_segment(name.table)}"
    if len(stem) <= _LONGEST_STEM:
        return stem
    return _BASE_32 + b32encode("\0".join(name).encode()).decode().rstrip("=").lower()


def _table_of(stem: str) -> TableName:
    if stem.startswith(_BASE_32):
        digits = stem.removeprefix(_BASE_32).upper()
        return TableName(*b32decode(digits + "=" * (-len(digits) % 8)).decode().split("\0"))
    schema, _, table = stem.partition(".")
    return TableName(source_name(schema), source_name(table))


def _names_of(folder: Path) -> list[TableName]:
    return sorted(_table_of(path.stem) for path in folder.glob("*.json"))
