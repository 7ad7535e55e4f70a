"""Captured changes of a tail in Arrow: their texts by column, which values they sent, and their typed keys. Pure.

`Captured` has the changes that have rows, in any order, with `number` from 0. Their tuples have the columns of the
tail: the executor has arranged those of other relation versions (`sql_of_tuples`).

A value that PostgreSQL stores out of line is never NULL. So a NULL in `old` means that the old tuple lacks an unchanged
value, and then no part of the change has it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn, Layout
from auditlake.sql_names import standard_literal
from auditlake.values.exact_text import outside, typed_values

_NO_TEXT = pa.scalar(None, pa.string())
AS_THEY_ARE = {name: f'"{name}"' for name in ("old", "new", "unchanged")}
"""Expressions of tuples that have the columns of the tail."""
NEVER_SENT = "an unchanged value was never sent, or for another key"


class Captured:
    """Changes of a tail; `omitted` are the places of the columns that some UPDATE omits as unchanged TOAST."""

    def __init__(self, changes: pa.Table, columns: Sequence[Column], omitted: Sequence[int]) -> None:
        self._columns, self.omitted = columns, omitted
        names, whole = ("op", "old", "new", "unchanged"), changes.combine_chunks()
        self.op, self._old, self._new, self._unchanged = (_array(whole[name]) for name in names)
        self.had_old = pc.is_valid(self._old)
        self.is_delete = pc.equal(self.op, "delete")

    def text(self, place: int) -> pa.Array:
        """Return the text of a column after each change: of REPLICA IDENTITY FULL, `old` has an unchanged value."""
        new = pc.list_element(self._new, place)
        return pc.if_else(self._is_omitted(place), self.old_text(place), new) if place in self.omitted else new

    def old_text(self, place: int) -> pa.Array:
        """Return the text of a column before each change, as far as `old` has it."""
        return pc.list_element(self._old, place)

    def _is_omitted(self, place: int) -> pa.Array:
        found = np.zeros(len(self._unchanged), np.bool_)
        flat = self._unchanged.flatten().to_numpy()
        found[pc.list_parent_indices(self._unchanged).to_numpy()[flat == place]] = True
        return pa.array(found)

    def is_sent(self, place: int) -> pa.Array:
        """Return whether each change has the value of a column.

        Raises ValueError if an INSERT omits it: an UPDATE brought the row into the publication's row filter.
        """
        unsent = pc.and_(self._is_omitted(place), pc.is_null(self.old_text(place)))
        if pc.any(pc.and_(unsent, pc.equal(self.op, "insert"))).as_py():
            raise ValueError(NEVER_SENT)
        return pc.invert(unsent)

    def partly_sent(self) -> dict[int, pa.Array]:
        """Return `is_sent` of the columns whose value some change does not have."""
        sent = {place: self.is_sent(place) for place in self.omitted}
        return {place: array for place, array in sent.items() if not pc.all(array).as_py()}

    def keys_after(self) -> dict[str, pa.Array]:
        """Return the typed key after each change but a DELETE, as `a_k0`, `a_r0` and so on."""
        return self._typed_key("a_", pc.invert(self.is_delete), self.text)

    def keys_before(self) -> dict[str, pa.Array]:
        """Return the typed key before each change that has an old tuple, as `b_k0`, `b_r0` and so on."""
        return self._typed_key("b_", pc.or_(self.is_delete, self.had_old), self.old_text)

    def _typed_key(self, prefix: str, had: pa.Array, text: Callable[[int], pa.Array]) -> dict[str, pa.Array]:
        """Return `k0`, `r0`, …: typed values, and the texts of values that their type cannot represent."""
        typed = dict[str, pa.Array]()
        for number, place in enumerate(place for place, column in enumerate(self._columns) if column.key):
            texts, held = pc.if_else(had, text(place), _NO_TEXT), type_of(self._columns[place])
            if pc.any(pc.and_(had, pc.is_null(texts))).as_py():
                raise ValueError("a change has no value for a key column")
            typed |= {f"{prefix}k{number}": typed_values(texts, held), f"{prefix}r{number}": outside(texts, held)}
        return typed

    def rows_after(self) -> pa.Array:
        """Return the whole row after each change as the list of its texts; NULL for a DELETE.

        Raises ValueError if an unchanged value is not in `old`: only REPLICA IDENTITY FULL compares whole rows.
        """
        if not self.omitted:
            return self._new
        if self.partly_sent():
            raise ValueError(NEVER_SENT)
        return _lists([self.text(place) for place in range(len(self._columns))], pc.is_valid(self._new))

    def rows_before(self) -> pa.Array:
        """Return the whole row before each change as the list of its texts; NULL for an INSERT."""
        return self._old


def _array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; `combine_chunks` copies a single one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _lists(columns: Sequence[pa.Array], had: pa.Array) -> pa.Array:
    """Return a list of the columns' elements per row; NULL if the row had none."""
    rows, width = len(had), len(columns)
    in_rows = pa.concat_arrays(columns).take(pa.array(np.arange(rows * width).reshape(width, rows).T.ravel()))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width), in_rows, mask=pc.invert(had))


def sql_of_tuples(
    layouts: Mapping[int, Layout], columns: Sequence[Column], added: Sequence[AddedColumn]
) -> dict[str, str]:
    """Return DuckDB's expressions of `old`, `new` and `unchanged` in the columns of the tail, by name.

    A change in an older shape counts as one that sets the missing value of each column that it lacks; one after the
    column was dropped again sets none. An old tuple that has only the key lacks them, too.
    """
    missing = {addition.column.stored: _missing(addition) for addition in added}
    texts = [missing.get(column.stored, "null") for column in columns]
    others = {n: layout for n, layout in layouts.items() if not layout.is_plain or layout.width != len(columns)}
    if not others:
        return AS_THEY_ARE
    no_texts = ["null"] * len(texts)
    return {
        "old": _by_relation(
            "old", {n: _arranged("old", o, texts if o.whole_old else no_texts) for n, o in others.items()}
        ),
        "new": _by_relation("new", {n: _arranged("new", o, texts) for n, o in others.items()}),
        "unchanged": _by_relation("unchanged", {n: _renumbered(layout) for n, layout in others.items()}),
    }


def _missing(added: AddedColumn) -> str:
    text = "null" if added.missing is None else standard_literal(added.missing)
    return text if added.column.until is None else f"case when lsn <= {added.since:d} then {text} end"


def _by_relation(name: str, arranged: Mapping[int, str]) -> str:
    cases = " ".join(f"when {number} then {sql}" for number, sql in arranged.items())
    return f'case when "{name}" is not null then case relation {cases} else "{name}" end end as "{name}"'


def _arranged(name: str, layout: Layout, texts: Sequence[str]) -> str:
    values = [
        text if place is None else f'"{name}"[{place + 1}]' for place, text in zip(layout.places, texts, strict=True)
    ]
    whole = f"""case when len("{name}") = {layout.width} then [{", ".join(values)}]::varchar[]"""
    return f"{whole} else error('a tuple has more or fewer values than its relation has columns') end"


def _renumbered(layout: Layout) -> str:
    """Return the places of unchanged columns in the tail; a column that a table without a key has dropped has none."""
    targets = [
        f'case when list_contains("unchanged", {place}) then {target} end'
        for place, target in sorted(layout.targets.items())
    ]
    return f"list_filter([{', '.join(targets)}]::smallint[], lambda place: place is not null)"
