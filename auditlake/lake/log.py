"""Append-only Delta tables with their position in the same commit: what capture writes.

`AppendLog` keeps one table handle for its life. A commit through it fails if anybody else committed in between, which
is the fence against a second writer: deltalake neither skips a repeated application transaction nor keeps its version
from going backwards, so the position is compared here, before every append.

Authority: Delta's PROTOCOL.md, "Transaction Identifiers"
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from auditlake.errors import InvariantBroken, LakeConflict, LakeUnusable

# Small commits leave small files; fewer than this many are cheap to read and to list.
_COMPACT_EVERY = 200


def open_delta(path: Path) -> DeltaTable | None:
    """Open a Delta table; None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


class AppendLog:
    """A Delta table that this process alone appends to."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        try:
            self._table = open_delta(path) or self._create(schema)
        except OSError as exc:
            raise LakeUnusable(f"{path} cannot be opened: {exc}", "Mend the folder and run it again.") from exc
        self._positions: dict[str, int | None] = {}
        self._appends = 0

    def _create(self, schema: pa.Schema) -> DeltaTable:
        self._path.mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(self._path, schema=schema)

    @property
    def table(self) -> DeltaTable:
        """The table as of this process's last commit."""
        return self._table

    def position(self, app: str) -> int | None:
        """Version of an application transaction, None if it was never committed."""
        if app not in self._positions:
            # Kept, because deltalake goes through the log for every answer, and only we move it.
            self._positions[app] = self._table.transaction_version(app)
        return self._positions[app]

    def append(self, rows: pa.RecordBatch | None, positions: Mapping[str, int]) -> None:
        """Append rows and move positions in one commit; without rows only the positions move.

        Raises LakeConflict where another process committed meanwhile, LakeUnusable where the folder cannot be written.
        """
        for app, version in positions.items():
            recorded = self.position(app)
            if recorded is not None and version < recorded:
                raise InvariantBroken(f"{app} of {self._path} would go back from {recorded} to {version}")
        properties = CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in positions.items()], max_commit_retries=0
        )
        try:
            self._commit(rows, properties)
        except CommitFailedError as exc:
            raise LakeConflict(
                f"another process committed to {self._path}", "Only one capture may run on a lake; stop the other."
            ) from exc
        except (DeltaError, OSError) as exc:
            raise LakeUnusable(f"{self._path} cannot be written: {exc}", "Mend the folder and run it again.") from exc
        self._positions.update(positions)

    def _commit(self, rows: pa.RecordBatch | None, properties: CommitProperties) -> None:
        if rows is None or rows.num_rows == 0:
            self._table.create_write_transaction([], "append", self._table.schema(), commit_properties=properties)
            self._table.update_incremental()
            return
        write_deltalake(self._table, pa.table(rows), mode="append", commit_properties=properties)
        self._appends += 1
        if self._appends % _COMPACT_EVERY == 0:
            self._table.optimize.compact()
