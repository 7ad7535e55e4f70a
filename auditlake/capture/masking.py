"""Masking in capture: changes whose values are replaced before anything of them is written, and the rules at a start.

`ChangeMasker` gets a batch of changes after its relation versions have their numbers, and thereby their attribute
numbers, and before its first append. It replaces the masked values of `old` and `new`; one that is not there (NULL, or
TOAST that did not change) stays as it is. It removes the missing values of columns from the DDL trigger's messages,
because no reader of the lake needs them. Other logical messages are no rows, and stay. A table with a column that
cannot be masked is parked just before the first such change; from there on it needs a new snapshot.

Without rules a batch costs nothing. For 400,000 changes a hashed column takes 0.4 s of a core, another rule 0.05 s;
decoding them takes 0.2 s, and writing them about 1.5 s (bench/masks.py, 2026-11-25).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import ConfigError
from auditlake.lake.histories import list_histories
from auditlake.lake.history import history_of, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.masks import Masks, TableMasks, check_effect, is_changed, settle
from auditlake.lake.parking import RENEWED_BY_FOLLOW, Cause, Parked, park
from auditlake.lake.records import read_recorded
from auditlake.lsn import Lsn
from auditlake.pgoutput.ddl_message import PREFIX, without_missing_values
from auditlake.relation import Relation, TableName
from auditlake.schema.attribute_numbers import read_attribute_entries
from auditlake.settings.mask_rules import MaskForm, Masking
from auditlake.source.catalog import read_tables
from auditlake.source.connection import Row, connect, fetch
from auditlake.values.masks import ColumnMask

_REMEDY = (
    "Correct [mask] (docs/masking.md), start again, then run auditlake resync for the table. Until then nothing of the"
    " column is recorded in the clear."
)
_NOT_NULL = """
select a.attrelid::bigint, a.attname::text from pg_catalog.pg_attribute a
 where a.attrelid = any (%s::oid[]) and a.attnum > 0 and not a.attisdropped and a.attnotnull
"""
_Places = npt.NDArray[np.int64]


class ChangeMasker:
    """Masks the changes of one lake, in the order of the stream."""

    def __init__(self, lake: Lake, masks: Masks) -> None:
        self._lake = lake
        self._masks = masks

    def masked(self, changes: pa.RecordBatch, relations: Mapping[int, Relation]) -> pa.RecordBatch:
        """Return the changes with masked values; `relations` are those of their numbers."""
        numbers = changes["relation"].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        found = {number: self._masks.of(relation) for number, relation in relations.items()}
        for number, masks in found.items():
            if masks.problems:
                first = Lsn(changes["lsn"][int(np.argmax(numbers == number))].as_py())
                self._park(relations[number], masks, first)
        for name in ("old", "new"):
            lists = [self._places(changes[name], numbers == n, relations[n], masks) for n, masks in found.items()]
            changes = _replaced(changes, name, [each for every in lists for each in every])
        return _without_missing_values(changes)

    @staticmethod
    def _places(
        tuples: pa.ListArray, rows: npt.NDArray[np.bool_], relation: Relation, masks: TableMasks
    ) -> Iterator[tuple[_Places, ColumnMask]]:
        """Yield the places of the values of each masked column, among the values of all tuples."""
        bounds = tuples.offsets.to_numpy().astype(np.int64)
        for position, column in enumerate(relation.columns):
            if (mask := masks.columns.get(column.name)) is not None:
                yield bounds[:-1][rows & (np.diff(bounds) > position)] + position, mask

    def _park(self, relation: Relation, masks: TableMasks, lsn: Lsn) -> None:
        history = open_history(self._lake, history_of(read_recorded(self._lake), relation))
        if history is None or lsn <= history.snapshot_lsn:
            return
        reason, unknown = "; ".join(masks.problems), any(column.attnum is None for column in relation.columns)
        remedy = RENEWED_BY_FOLLOW if unknown else _REMEDY
        park(self._lake, Parked(history.name, Cause.MASK, Lsn(lsn - 1), lsn, reason, remedy, renewable=unknown))


def _replaced(changes: pa.RecordBatch, name: str, found: list[tuple[_Places, ColumnMask]]) -> pa.RecordBatch:
    """Return the changes with the values at these places masked."""
    found = [(places, mask) for places, mask in found if places.size]
    if not found:
        return changes
    tuples = changes[name]
    values = tuples.values
    masked = pa.concat_arrays([mask.texts(values.take(pa.array(places))) for places, mask in found])
    places = np.concatenate([places for places, _ in found])
    chosen = np.zeros(len(values), np.bool_)
    chosen[places] = True
    in_order = masked.take(pa.array(np.argsort(places, kind="stable")))
    new = pc.replace_with_mask(values, pa.array(chosen), in_order)
    lists = pa.ListArray.from_arrays(tuples.offsets, new, mask=tuples.is_null())
    return changes.set_column(changes.schema.get_field_index(name), changes.schema.field(name), lists)


def _without_missing_values(changes: pa.RecordBatch) -> pa.RecordBatch:
    are_ddl = pc.fill_null(pc.equal(changes["prefix"], PREFIX), fill_value=False)
    if not pc.any(are_ddl).as_py():
        return changes
    rows = zip(are_ddl.to_pylist(), changes["content"].to_pylist(), strict=True)
    contents = pa.array(
        [without_missing_values(content) if is_ddl else content for is_ddl, content in rows], pa.binary()
    )
    place = changes.schema.get_field_index("content")
    return changes.set_column(place, changes.schema.field(place), contents)


def prepare_masks(conninfo: str, lake: Lake, rules: Masking) -> None:
    """Check the rules of the settings, and record them if they are new; raises ConfigError before that."""
    if not is_changed(lake, rules):
        return
    check_effect(lake, rules)
    followed = {history.oid for history in list_histories(lake)}
    with connect(conninfo) as conn:
        tables = [table.relation for table in read_tables(conn)]
        check_rules(conn, rules, (table for table in tables if table.oid in followed))
    settle(lake, rules)


def check_rules(conn: psycopg.Connection[Row], rules: Masking, relations: Iterable[Relation]) -> None:
    """Require that every pattern matches something, and that the rules fit these tables; raises ConfigError."""
    every = {table.name: [column.name for column in table.relation.columns] for table in read_tables(conn)}
    if unmatched := rules.unmatched(every):
        raise ConfigError(
            f"the pattern {unmatched[0]} of [mask] matches nothing in the database",
            "Write schema.table.column, or schema.table in strict; a pattern that matches nothing would mask nothing.",
        )
    check_fit(conn, rules, relations)


def check_fit(conn: psycopg.Connection[Row], rules: Masking, relations: Iterable[Relation]) -> None:
    """Require that the rules fit the columns of these tables; raises ConfigError."""
    found = list(relations)
    not_null = {(oid, name) for oid, name in fetch(conn, _NOT_NULL, [relation.oid for relation in found])}
    problems = [
        each for relation in found for each in _misfits(rules, relation, cast("set[tuple[int, str]]", not_null))
    ]
    if problems:
        raise ConfigError("; ".join(problems), "Correct [mask]; docs/masking.md has the rules and their types.")


def _misfits(rules: Masking, relation: Relation, not_null: set[tuple[int, str]]) -> Iterator[str]:
    for column in relation.columns:
        rule = rules.rule_of(relation.name, column.name)
        where = f"column {column.name} of {relation.name}"
        if rule is None:
            if rules.is_strict([relation.name]):
                yield f"{where} has no rule in [mask], and the table is strict"
        elif problem := rule.problem(column.type_oid, key=column.key):
            yield f"{where} cannot have the rule {rule}: {problem}"
        elif rule.form is MaskForm.NULL and (relation.oid, column.name) in not_null:
            yield f"{where} cannot have the rule {rule}: it is NOT NULL"


def bind_copies(
    conn: psycopg.Connection[Row], lake: Lake, rules: Masking, relations: Sequence[Relation]
) -> dict[TableName, Mapping[str, ColumnMask]]:
    """Record and return the masks of tables to copy, by table and column; raises ConfigError."""
    masks = Masks(lake, rules)
    found = {relation.name: masks.of(relation, copied=True) for relation in relations}
    if problems := [f"{name}: {problem}" for name, each in found.items() for problem in each.problems]:
        raise ConfigError("; ".join(problems), "Correct [mask]; docs/masking.md has the rules and their types.")
    for relation in relations:
        if found[relation.name].columns:  # messages from now on are compared with these
            masks.kept(relation.oid, Lsn(0), read_attribute_entries(conn, relation.oid))
    return {name: each.columns for name, each in found.items()}


def read_masks(lake: Lake, rules: Masking) -> Masks | None:
    """Open the masks of a lake; None if nothing is masked. Raises ConfigError if the lake records other rules."""
    return Masks(lake, rules) or None
