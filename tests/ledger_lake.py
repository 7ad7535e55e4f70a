"""A sealed lake for the tests of the ledger, and what an attacker with write access does to it."""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.append_table import open_delta
from auditlake.delta.data_files import file_statistics, statistics_json
from auditlake.delta.log_reader import file_path, live_files
from auditlake.lake.layout import Lake
from auditlake.ledger.digest import checkpoint_of, last_block
from auditlake.ledger.seal import Sealer
from auditlake.ledger.signed_note import SigningKey, open_note
from auditlake.ledger.verification import Proof, VerifiedDigest, verify_digests
from auditlake.store.files import parquet
from auditlake.store.place import Place
from tests.damage import summed, with_file
from tests.s3_server import forget, overwrite

KEY = SigningKey.generate("tests")

Rows = Callable[[pa.Table], pa.Table]


def sealed(lake: Lake, name: str = "digest") -> VerifiedDigest:
    """Seal a lake, and return its digest as it is read from its file."""
    Sealer(lake).seal("tests")
    note = KEY.sign(checkpoint_of(last_block(lake)))
    return VerifiedDigest(name, open_note(note, KEY.public, name))


def compared(lake: Lake, *digests: VerifiedDigest) -> Proof:
    """Compare a lake with digests, as another process would."""
    forget(lake.root)
    return verify_digests(lake, digests, 20)


def found(proof: Proof) -> list[tuple[str, str, int | None, int | None]]:
    """Return kind, table, commit and change of each mismatch."""
    return [(each.kind, each.table, each.lsn, each.ordinal) for each in proof.mismatches]


def files_of(place: Place) -> list[Place]:
    """Return the live data files of a table, as paths."""
    table = open_delta(place)
    assert table is not None
    return [file_path(place, add) for add in live_files(place, table.version())]


def edit_rows(place: Place, change: Rows) -> list[str]:
    """Change rows of a table's files, each with its right size and statistics in the log; return the changed files."""
    changed = []
    for path in files_of(place):
        before = pq.ParquetFile(parquet(path)).read()
        after = change(before)
        if after.equals(before):
            continue
        content = BytesIO()
        pq.write_table(after, content)
        overwrite(path, content.getvalue())
        changed.append(path.name)
        _correct(place, path, content)
    assert changed
    return changed


def _correct(place: Place, path: Place, content: BytesIO) -> None:
    footer = pq.read_metadata(content)

    def corrected(add: dict[str, Any]) -> Mapping[str, Any]:
        if Path(add["path"]).name != path.name:
            return add
        columns = json.loads(add["stats"]).get("minValues", {})
        statistics = statistics_json(file_statistics(footer, columns))
        return with_file(add, content.getvalue(), statistics)

    edit_adds(place, corrected)


def edit_adds(place: Place, change: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> None:
    """Replace the `add` actions of every entry of a table's log; None removes one."""
    for entry in (place / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        changed = [{"add": change(each["add"])} if "add" in each else each for each in actions]
        kept = [each for each in changed if each.get("add", ...) is not None]
        overwrite(entry, summed(entry.name, kept))


def where(column: str, value: object, change: Callable[[Any], Any], target: str) -> Rows:
    """Return a change of one column, in the rows in which another has a value."""

    def changed(rows: pa.Table) -> pa.Table:
        if column not in rows.column_names:
            return rows
        pairs = zip(rows[column].to_pylist(), rows[target].to_pylist(), strict=True)
        values = [change(each) if at == value else each for at, each in pairs]
        place = rows.schema.get_field_index(target)
        return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

    return changed


def without(column: str, value: object) -> Rows:
    """Return a change that removes the rows in which a column has a value."""
    return lambda rows: rows.filter(pc.not_equal(rows[column], pa.scalar(value, rows.schema.field(column).type)))
