"""Find the rows of an erasure by tokens of their keys, and take values out of them: in histories, `changes`, contexts.

Rows are found by tokens and never by keys, so that an erasure which was killed can be finished from its record alone.
What is done to a row twice is done once: an erased row has no token any more, or NULL where its values were.

    history        the row goes, or the erased columns of its closed versions become NULL, and their texts leave `_raw`,
                   which gets ERASED_KEY with the columns' names instead
    changes        the row becomes `erased`, without tuples; or the columns become NULL in both tuples
    transactions   texts in `context` that contain an erased value become `[erased]`
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.lake.erasures import ERASED_KEY, ERASED_OP, Erasure
from auditlake.ledger.copies import text_column
from auditlake.relation import Column

REPLACED = "[erased]"
"""What replaces a text in a context."""
LEAST_TEXT = 4
"""Shorter values are not looked for in contexts: they are everywhere."""


@dataclass(slots=True)
class Matcher:
    """Tells whether keys, as PostgreSQL's texts, are those of an erasure."""

    erasure: Erasure
    secret: bytes
    _known: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def matches(self, key: Sequence[str | None]) -> bool:
        """Return whether a key is one of those that the row had, which have no NULL."""
        texts = tuple(text for text in key if text is not None)
        if len(texts) < len(key):
            return False
        found = self._known.get(texts)
        if found is None:
            found = self.erasure.token(self.secret, texts) in self.erasure.tokens
            if len(self._known) < 1 << 20:
                self._known[texts] = found
        return found


@dataclass(frozen=True, slots=True)
class InHistory:
    """The rows of a history that are concerned; `key` are the columns by which they are found."""

    key: tuple[Column, ...]
    matcher: Matcher

    @property
    def needed(self) -> list[str]:
        """Return the columns by which rows are found."""
        return [*(column.stored for column in self.key), "_raw"]

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which rows have a key of the erasure."""
        keys = [text_column(rows, column).to_pylist() for column in self.key]
        return np.fromiter((self.matcher.matches(key) for key in zip(*keys, strict=True)), bool, rows.num_rows)

    def erased(self, rows: pa.Table) -> np.ndarray:
        """Return which rows go, or lose values: versions that ended."""
        mask = self.mask(rows)
        return mask if not self.matcher.erasure.columns else mask & rows["_to_lsn"].is_valid().to_numpy()

    def change(self, rows: pa.Table) -> pa.Table:
        """Return the rows that stay, without the values that go."""
        erasure, here = self.matcher.erasure, pa.array(self.erased(rows))
        if not erasure.columns:
            return rows.filter(pc.invert(here))
        if not pc.any(here).as_py():
            return rows
        for name in (name for name in erasure.stored if name in rows.column_names):
            rows = _with(rows, name, _without_values(rows[name].combine_chunks(), here))
        return _with(rows, "_raw", _marked(rows["_raw"].to_pylist(), here.to_pylist(), erasure, rows["_raw"].type))


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
class Contexts:
    """The values that contexts of these commits must not contain: JSON that applications sent as logical messages."""

    lsns: frozenset[int] = frozenset()
    values: frozenset[str] = frozenset()

    def cleaned(self, lsn: int, text: str) -> str:
        """Return a context, or another message, of a commit without the values; unchanged if it has none."""
        if lsn not in self.lsns or not (self._has(text) or self._has(_unescaped(text))):
            return text
        try:
            integer, real = self._number_by(int), self._number_by(float)
            content = json.loads(text, object_pairs_hook=self._members, parse_int=integer, parse_float=real)
            return json.dumps(self._of(content), ensure_ascii=False)
        except (ValueError, RecursionError):  # no JSON, or nested as nobody reads it
            return REPLACED

    def _members(self, pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        """Clean an object; of members with one name, only the last stays."""
        return {REPLACED if self._has(name) else name: self._of(value) for name, value in pairs}

    def _number_by(self, read: Callable[[str], object]) -> Callable[[str], object]:
        return lambda text: REPLACED if self._has(text) else read(text)

    def _of(self, content: object) -> object:
        if isinstance(content, list):
            return [self._of(each) for each in content]
        if isinstance(content, dict):  # cleaned when it was read
            return content
        text = content if isinstance(content, str) else json.dumps(content)
        return REPLACED if self._has(text) else content

    def _has(self, text: str) -> bool:
        return any(value in text for value in self.values)


def _unescaped(text: str) -> str:
    """Return a text with its escapes of JSON read, whatever form it has."""
    read = _ESCAPE.sub(lambda match: chr(int(match["hex"], 16)) if match["hex"] else _ESCAPES[match["one"]], text)
    return read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", **{each: each for each in '"\\/'}}
_ESCAPE = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<one>[bfnrt\"\\/]))")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a relation version has the key's columns, and those that are erased, from 0."""

    key: tuple[int, ...]
    erased: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InChanges:
    """The rows of `changes` that are concerned: of these relation versions, with a key of the row on either side."""

    relations: Mapping[int, Places]
    matcher: Matcher
    contexts: Contexts

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which rows are concerned, messages with a value included."""
        found = self.of_row(rows)
        is_message = pc.fill_null(pc.equal(rows["op"], "message"), fill_value=False).to_numpy()
        places = np.flatnonzero(is_message & bool(self.contexts.lsns))
        messages = rows.select(["lsn", "content"]).take(pa.array(places)).to_pylist()
        for place, row in zip(places, messages, strict=True):
            found[place] |= self._message(row) != row["content"]
        return found

    def _message(self, row: Mapping[str, Any]) -> bytes | None:
        if row["content"] is None:
            return None
        text = bytes(row["content"]).decode(errors="surrogateescape")
        return self.contexts.cleaned(row["lsn"], text).encode(errors="surrogateescape")

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
        columns = ("lsn", "ordinal", "op", "relation", "old", "new", "unchanged", "content")
        changed = rows.select(columns).to_pylist()
        for place in np.flatnonzero(mask):
            row = changed[place]
            if row["op"] == "message":
                row["content"] = self._message(row)
                continue
            if not erasure.columns:
                row |= {"op": ERASED_OP, "old": None, "new": None, "unchanged": None}
                continue
            gone = self.relations[row["relation"]].erased
            row["old"] = _without(row["old"], gone)
            if (row["lsn"], row["ordinal"]) not in erasure.kept:
                row["new"] = _without(row["new"], gone)
        for name in ("op", "old", "new", "unchanged", "content") if mask.any() else ():
            rows = _with(rows, name, pa.array([row[name] for row in changed], rows.schema.field(name).type))
        return rows

    def erased_texts(self, row: Mapping[str, Any]) -> set[str]:
        """Return the values in a row that is concerned which go."""
        erasure, places = self.matcher.erasure, self.relations[row["relation"]]
        sides = [row["old"]] if (row["lsn"], row["ordinal"]) in erasure.kept else [row["old"], row["new"]]
        return {
            text
            for texts in sides
            for place, text in enumerate(texts or ())
            if text is not None and (place in places.erased or not erasure.columns)
        }


def keys_of(places: Places, row: Mapping[str, Any]) -> list[list[str | None]]:
    """Return the keys of a row of `changes`: before the change, and after it."""
    old, new, unchanged = row["old"], row["new"], row["unchanged"] or ()
    found = []
    if old is not None:
        found.append([old[place] for place in places.key])
    if new is not None:
        found.append([old[p] if old is not None and p in unchanged else new[p] for p in places.key])
    return found


def _without(texts: list[str | None] | None, gone: Sequence[int]) -> list[str | None] | None:
    if texts is None:
        return None
    return [None if place in gone else text for place, text in enumerate(texts)]


@dataclass(frozen=True, slots=True)
class InTransactions:
    """The rows of `transactions` that are concerned: those whose context changes."""

    contexts: Contexts

    def mask(self, rows: pa.Table) -> np.ndarray:
        """Return which contexts contain a value."""
        pairs = zip(rows["lsn"].to_pylist(), rows["context"].to_pylist(), strict=True)
        found = (text is not None and self.contexts.cleaned(lsn, text) != text for lsn, text in pairs)
        return np.fromiter(found, bool, rows.num_rows)

    def change(self, rows: pa.Table) -> pa.Table:
        """Return all rows, with contexts that contain no value."""
        pairs = zip(rows["lsn"].to_pylist(), rows["context"].to_pylist(), strict=True)
        texts = [None if text is None else self.contexts.cleaned(lsn, text) for lsn, text in pairs]
        return _with(rows, "context", pa.array(texts, rows.schema.field("context").type))
