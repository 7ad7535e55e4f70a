"""Find the rows of an erasure by tokens of their keys, and take values out of them: in histories and `changes`.

Rows are found by tokens and never by keys, so that an erasure which was killed can be finished from its record alone.
Erasing twice has the effect of erasing once: an erased row has no token any more, or NULL in place of its values.

    history        the row goes, or the erased columns of its closed versions become NULL, and their texts leave `_raw`,
                   which gets ERASED_KEY with the columns' names instead
    changes        the row becomes `erased`, without tuples; or the columns become NULL in both tuples
    key columns    a text with a part of the key's token, the same for each key, in both places instead of NULL: every
                   version is still one of the same row, and every change still ends the version that it ended
    transactions   texts in `context` lose the values (`erasure.contexts`)
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.history_conditions import types_over_time
from auditlake.erasure.contexts import Contexts
from auditlake.errors import Unsupported
from auditlake.lake.erasures import ERASED_KEY, ERASED_OP, Erasure
from auditlake.lake.history import HistoryTable
from auditlake.ledger.copies import text_column
from auditlake.relation import Column
from auditlake.values.input_syntax import type_name
from auditlake.values.types import is_widened

_TOKEN_CHARS = 32
"""Hexadecimal digits, 128 bits: erased keys still differ."""


PhysicalKey = tuple[tuple[Column, ...], ...]
"""Of each column of a key, the physical columns in the history: one for each type that it has had."""


def physical_key(table: HistoryTable, keyed: HistoryTable) -> PhysicalKey:
    """Return the key of `keyed`, a table with own names, as the columns of the same table as it is read."""
    stored = {column.stored: column for column in table.columns}
    of_types = (types_over_time(keyed, column) for column in keyed.key)
    return tuple(tuple(stored[each.stored] for each in columns) for columns in of_types)


def require_one_text(keyed: HistoryTable) -> None:
    """Require that a key has one text under each type that its columns have had; raises Unsupported."""
    for column in keyed.key:
        for each in types_over_time(keyed, column):
            if not is_widened(each.type, column.type) and not is_widened(column.type, each.type):
                raise Unsupported(
                    f"{column.name}, of the key of {keyed.label}, was of {type_name(*each.type)} before it was of "
                    f"{type_name(*column.type)}, so a key may have had another text",
                    "Its rows cannot be found by one key. docs/proof-and-erasure.md, Erasure, has what to do instead.",
                )


def keys_in(key: PhysicalKey, rows: pa.Table) -> Iterator[tuple[str | None, ...]]:
    """Return the keys of rows, as texts; a row has a part in the column of one type, which a file may lack."""
    return zip(*(_texts(rows, columns) for columns in key), strict=True)


def _texts(rows: pa.Table, columns: Sequence[Column]) -> list[str | None]:
    found = [text_column(rows, column) for column in columns if column.stored in rows.column_names]
    return pc.coalesce(*found).to_pylist() if found else [None] * rows.num_rows


def whole(key: Sequence[str | None]) -> tuple[str, ...] | None:
    """Return a key; None if a part of it is NULL, which no row's key has."""
    texts = tuple(text for text in key if text is not None)
    return texts if len(texts) == len(key) else None


@dataclass(slots=True)
class Matcher:
    """Recognizes the keys of an erasure by their texts in PostgreSQL."""

    erasure: Erasure
    secret: bytes
    _known: dict[tuple[str, ...], str] = field(default_factory=dict)

    def matches(self, key: Sequence[str | None]) -> bool:
        """Return whether a key is one of those that the row had, which have no NULL."""
        return self._token(key) in self.erasure.tokens

    def replacement(self, key: Sequence[str | None]) -> str | None:
        """Return the text that replaces the erased columns of a key; None if PostgreSQL has the key."""
        found = self._token(key)
        return f"[erased {found[:_TOKEN_CHARS]}]" if found in self.erasure.replaced_keys else None

    def _token(self, key: Sequence[str | None]) -> str:
        if (texts := whole(key)) is None:
            return ""
        found = self._known.get(texts)
        if found is None:
            found = self.erasure.token(self.secret, texts)
            if len(self._known) < 1 << 20:
                self._known[texts] = found
        return found


@dataclass(frozen=True, slots=True)
class InHistory:
    """The rows of a history that are concerned; `key` has the columns by which they are found, as `PhysicalKey`."""

    key: PhysicalKey
    matcher: Matcher

    @property
    def needed(self) -> list[str]:
        """Return the columns by which rows are found."""
        return [*self.of_key, "_raw"]

    @property
    def of_key(self) -> frozenset[str]:
        """Return the stored names of the key's columns."""
        return frozenset(column.stored for columns in self.key for column in columns)

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which rows have a key of the erasure."""
        return np.fromiter(map(self.matcher.matches, self._keys(rows)), bool, rows.num_rows)

    def _keys(self, rows: pa.Table) -> Iterator[tuple[str | None, ...]]:
        return keys_in(self.key, rows)

    def erased(self, rows: pa.Table) -> np.ndarray:
        """Return which rows go, or lose values: versions that PostgreSQL has no more."""
        erasure = self.matcher.erasure
        ended = pc.fill_null(pc.less_equal(rows["_to_lsn"], erasure.upto_lsn), fill_value=erasure.is_dropped)
        here: np.ndarray = self.mask(rows) & ended.to_numpy()
        return here

    def change(self, rows: pa.Table) -> pa.Table:
        """Return the rows that stay, without the values that go."""
        erasure, here = self.matcher.erasure, pa.array(self.erased(rows))
        if not erasure.columns:
            return rows.filter(pc.invert(here))
        if not pc.any(here).as_py():
            return rows
        of_key, keys = self.of_key, [*self._keys(rows)]
        for name in (name for name in erasure.stored if name in rows.column_names):
            values = rows[name].combine_chunks()
            rows = _with(
                rows, name, self._replaced(values, here, keys) if name in of_key else _without_values(values, here)
            )
        return _with(rows, "_raw", _marked(rows["_raw"].to_pylist(), here.to_pylist(), erasure, rows["_raw"].type))

    def lost(self, rows: pa.Table, columns: Iterable[Column]) -> set[str]:
        """Return the texts in columns that versions lose; a key that PostgreSQL has stays in them."""
        before = rows.filter(pa.array(self.erased(rows)))
        states = (before, self.change(before))
        present = [column for column in columns if column.stored in rows.column_names]
        texts = (zip_longest(*(text_column(state, column).to_pylist() for state in states)) for column in present)
        return {text for column in texts for text, left in column if text is not None and text != left}

    def _replaced(self, values: pa.Array, here: pa.Array, keys: Sequence[Sequence[str | None]]) -> pa.Array:
        """Return the values of a column of the key, replaced where a row is concerned and its key is gone."""
        rows = zip(values.to_pylist(), here.to_pylist(), keys, strict=True)
        found = [
            (value is not None and concerned and self.matcher.replacement(key)) or value
            for value, concerned, key in rows
        ]
        return pa.array(found, values.type)


def _without_values(values: pa.Array, here: pa.Array) -> pa.Array:
    """Return values of any type, NULL where a row is concerned."""
    return values.take(pa.array(np.arange(len(values)), mask=here.to_numpy(zero_copy_only=False)))


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def _marked(raws: Sequence[Any], here: Sequence[bool], erasure: Erasure, kind: pa.DataType) -> pa.Array:
    """Return `_raw` without the texts of erased columns, and with their names."""
    found: list[list[tuple[str, str]] | None] = []
    for raw, concerned in zip(raws, here, strict=True):
        if not concerned:
            found.append(raw)
            continue
        entries = dict(raw or ())
        before = json.loads(entries.pop(ERASED_KEY, "[]"))
        kept = {name: text for name, text in entries.items() if name not in erasure.stored}
        names = sorted({*before, *erasure.columns})
        found.append([*kept.items(), (ERASED_KEY, json.dumps(names, ensure_ascii=False))])
    return pa.array(found, kind)


@dataclass(frozen=True, slots=True)
class Places:
    """Where, from 0, a relation version has the columns of the key, and those that are erased, with their own names."""

    key: tuple[int, ...]
    erased: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class InChanges:
    """The rows of `changes` that are concerned: of these relation versions, with a key of the row on either side.

    `present` has the texts that PostgreSQL has in an erased column, by the LSN of the commit that they came with and
    the column's own name. They stay there in all changes of it: a later change of the transaction leaves out a value
    that is toasted and unchanged.
    """

    relations: Mapping[int, Places]
    matcher: Matcher
    contexts: Contexts
    present: Mapping[tuple[int, str], frozenset[str]] = field(default_factory=dict)

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which rows are concerned, messages with a value included."""
        found = self.of_row(rows)
        is_message = pc.fill_null(pc.equal(rows["op"], "message"), fill_value=False).to_numpy()
        places = np.flatnonzero(is_message & bool(self.contexts.lsns))
        messages = rows.select(["lsn", "prefix", "content"]).take(pa.array(places)).to_pylist()
        for place, row in zip(places, messages, strict=True):
            found[place] |= self._message(row) != row
        return found

    def _message(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a message without the values."""
        cleaned = {**row, "prefix": self.contexts.cleaned_prefix(row["lsn"], row["prefix"])}
        if row["content"] is not None:
            text = bytes(row["content"]).decode(errors="surrogateescape")
            cleaned["content"] = self.contexts.cleaned(row["lsn"], text).encode(errors="surrogateescape")
        return cleaned

    def of_row(self, rows: pa.Table) -> np.ndarray:
        """Return which rows have a key of the erasure, and are not later than it."""
        mask = np.zeros(rows.num_rows, bool)
        numbers = pa.array(list(self.relations), rows["relation"].type)
        near = pc.and_(
            pc.fill_null(pc.is_in(rows["relation"], numbers), fill_value=False),
            pc.less_equal(rows["lsn"], self.matcher.erasure.upto_lsn),
        )
        places = np.flatnonzero(near.to_numpy())
        chosen = rows.select(["relation", "old", "new", "unchanged"]).take(pa.array(places))
        for place, row in zip(places, chosen.to_pylist(), strict=True):
            mask[place] = any(self.matcher.matches(key) for key in keys_of(self.relations[row["relation"]], row))
        return mask

    def change(self, rows: pa.Table) -> pa.Table:
        """Return all rows, those that are concerned without what goes."""
        mask, erasure = self.mask(rows), self.matcher.erasure
        columns = ("lsn", "ordinal", "op", "relation", "old", "new", "unchanged", "prefix", "content")
        changed = rows.select(columns).to_pylist()
        for place in np.flatnonzero(mask):
            row = changed[place]
            if row["op"] == "message":
                row |= self._message(row)
                continue
            if not erasure.columns:
                row |= {"op": ERASED_OP, "old": None, "new": None, "unchanged": None}
                continue
            gone = {side: self._gone(row, side) for side in ("old", "new")}
            row |= {side: _with_texts(row[side], found) for side, found in gone.items()}
        for name in ("op", "old", "new", "unchanged", "prefix", "content") if mask.any() else ():
            rows = _with(rows, name, pa.array([row[name] for row in changed], rows.schema.field(name).type))
        return rows

    def erased_texts(self, row: Mapping[str, Any]) -> set[str]:
        """Return the values in a row that is concerned which go."""
        texts = (row[side][place] for side in ("old", "new") for place in self._gone(row, side))
        return {text for text in texts if text is not None}

    def _gone(self, row: Mapping[str, Any], side: str) -> Mapping[int, str | None]:
        """Return the places in a tuple whose texts go, each with what replaces it."""
        erasure, places, texts = self.matcher.erasure, self.relations[row["relation"]], row[side]
        if texts is None or (side == "new" and erasure.columns and (row["lsn"], row["ordinal"]) in erasure.kept):
            return {}
        if not erasure.columns:
            return dict.fromkeys(range(len(texts)))
        replacement = self.matcher.replacement(_key_of(places, row, side))
        found = {
            place: replacement if place in places.key else None
            for place, name in places.erased.items()
            if place in places.key or texts[place] not in self.present.get((row["lsn"], name), ())
        }
        return {place: text for place, text in found.items() if text is not None or place not in places.key}


def keys_of(places: Places, row: Mapping[str, Any]) -> list[list[str | None]]:
    """Return the keys of a row of `changes`: before the change, and after it."""
    return [_key_of(places, row, side) for side in ("old", "new") if row[side] is not None]


def _key_of(places: Places, row: Mapping[str, Any], side: str) -> list[str | None]:
    old, texts, unchanged = row["old"], row[side], row["unchanged"] or ()
    return [old[p] if old is not None and p in unchanged else texts[p] for p in places.key]


def _with_texts(texts: list[str | None] | None, found: Mapping[int, str | None]) -> list[str | None] | None:
    """Return a tuple with other texts in some places that are not NULL."""
    if texts is None:
        return None
    return [text if text is None else found.get(place, text) for place, text in enumerate(texts)]


@dataclass(frozen=True, slots=True)
class InTransactions:
    """The rows of `transactions` that are concerned: those whose context changes."""

    contexts: Contexts

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which contexts contain a value."""
        pairs = zip(rows["lsn"].to_pylist(), rows["context"].to_pylist(), strict=True)
        found = (text is not None and self.contexts.cleaned_context(lsn, text) != text for lsn, text in pairs)
        return np.fromiter(found, bool, rows.num_rows)

    def change(self, rows: pa.Table) -> pa.Table:
        """Return all rows, with contexts that contain no value."""
        pairs = zip(rows["lsn"].to_pylist(), rows["context"].to_pylist(), strict=True)
        texts = [None if text is None else self.contexts.cleaned_context(lsn, text) for lsn, text in pairs]
        return _with(rows, "context", pa.array(texts, rows.schema.field("context").type))
