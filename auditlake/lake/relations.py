"""The `relations` table: versions of each relation, with the commit LSN from which each is in force.

Every row of `changes` refers to one version. Versions are identified by their content, so a crash between the commits
of this table and of `changes` needs no repair: the replay gets the same number.
"""

import pyarrow as pa
from deltalake import DeltaTable

from auditlake.delta.append_table import AppendLog, open_delta
from auditlake.lake.layout import Lake
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName

_COLUMN = pa.struct([("name", pa.string()), ("type_oid", pa.int64()), ("typmod", pa.int32()), ("key", pa.bool_())])
RELATIONS_SCHEMA = pa.schema(
    [
        ("relation", pa.int64()),
        ("lsn", pa.int64()),
        ("oid", pa.int64()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("replica_identity", pa.string()),
        ("columns", pa.list_(_COLUMN)),
    ]
)


def read_relations(lake: Lake) -> dict[int, Relation]:
    """Read every relation version by its number."""
    table = open_delta(lake.relations)
    return {} if table is None else {number: relation for number, _, relation in _rows(table)}


def _rows(table: DeltaTable) -> list[tuple[int, int, Relation]]:
    rows = pa.table(table.to_pyarrow_table()).sort_by([("lsn", "ascending"), ("relation", "ascending")]).to_pylist()
    return [(row["relation"], row["lsn"], _relation(row)) for row in rows]


def _relation(row: dict[str, object]) -> Relation:
    columns = row["columns"]
    assert isinstance(columns, list)  # noqa: S101 - as in the schema
    return Relation(
        oid=int(str(row["oid"])),
        name=TableName(str(row["schema"]), str(row["table"])),
        replica_identity=ReplicaIdentity(str(row["replica_identity"])),
        columns=tuple(Column(c["name"], c["type_oid"], c["typmod"], c["key"]) for c in columns),
    )


class RelationsLog:
    """Registry of relation versions: numbers them, and appends new ones to the table."""

    def __init__(self, lake: Lake) -> None:
        self._log = AppendLog(lake.relations, RELATIONS_SCHEMA)
        self._numbers: dict[Relation, int] = {}
        self._in_force: dict[int, Relation] = {}
        self._pending: list[dict[str, object]] = []
        self._fresh: list[tuple[int, Relation]] = []
        self._kept: list[tuple[int, Relation]] = []
        for number, lsn, relation in _rows(self._log.table):
            self._numbers[relation] = number
            self._in_force[relation.oid] = relation
            self._kept.append((lsn, relation))

    def register(self, relation: Relation, commit_lsn: int) -> int:
        """Return the number of this version; if it was not in force, record it as in force from `commit_lsn` on."""
        number = self._numbers.setdefault(relation, len(self._numbers) + 1)
        if self._in_force.get(relation.oid) != relation:
            self._in_force[relation.oid] = relation
            self._pending.append(_row(number, commit_lsn, relation))
            self._fresh.append((commit_lsn, relation))
        return number

    @property
    def versions(self) -> list[tuple[int, Relation]]:
        """Return every version with the commit LSN from which it is in force, in that order, flushed or not."""
        return [*self._kept, *self._fresh]

    @property
    def fresh(self) -> frozenset[TableName]:
        """Return the tables of versions that are not flushed yet."""
        return frozenset(relation.name for _, relation in self._fresh)

    def flush(self) -> None:
        """Append the versions registered since the last flush; call it before appending changes that refer to them."""
        if self._pending:
            self._log.append(pa.RecordBatch.from_pylist(self._pending, schema=RELATIONS_SCHEMA), {})
            self._pending.clear()
            self._kept += self._fresh
            self._fresh.clear()


def _row(number: int, commit_lsn: int, relation: Relation) -> dict[str, object]:
    return {
        "relation": number,
        "lsn": commit_lsn,
        "oid": relation.oid,
        "schema": relation.name.schema,
        "table": relation.name.table,
        "replica_identity": relation.replica_identity.value,
        "columns": [
            {"name": c.name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key} for c in relation.columns
        ],
    }
