"""Changes of the feed: one change with typed values under the columns' names of the moment, one transaction. Pure.

`before` and `after` have what PostgreSQL sent. Under the default replica identity that is the whole new row, and of the
old row the key if it changed or the row was deleted; under REPLICA IDENTITY FULL it is both rows. A long value that an
UPDATE left alone is not sent: it is `UNCHANGED`, never None.

As JSON, each transaction is a line, a line for every change, and a line that ends it:

    {"kind": "transaction", "lsn": …, "xid": …, "time": …, "actor": …, "reason": …, …}
    {"kind": "change", "ordinal": …, "op": …, "table": …, "key": …, "before": …, "after": …, "unchanged": […]}
    {"kind": "end", "lsn": …, "cursor": …}

Values are PostgreSQL's text or null, as in all JSON of the audit commands, so nothing is rounded. A reader that acts on
a transaction only when it has read its end never acts on part of one. docs/changes.md lists the fields.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from auditlake.audit.json_output import line, transaction_json
from auditlake.audit.transactions import Transaction
from auditlake.pgoutput.decoder import UNCHANGED
from auditlake.relation import Column, TableName
from auditlake.values.python_values import decoder

Texts = Mapping[str, str | None]
Fields = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One change of a row, or a TRUNCATE of a table.

    `op` is insert, update, delete or truncate. `columns` are those of the table at that moment. The texts are
    PostgreSQL's own, by column name, None for NULL; `after_texts` lacks the `unchanged` columns.
    """

    table: TableName
    op: str
    ordinal: int
    columns: tuple[Column, ...]
    key_names: tuple[str, ...]
    before_texts: Texts | None
    after_texts: Texts | None
    unchanged: tuple[str, ...] = ()

    @cached_property
    def before(self) -> dict[str, Any] | None:
        """The values sent of the old row; None if none were."""
        return None if self.before_texts is None else self._typed(self.before_texts)

    @cached_property
    def after(self) -> dict[str, Any] | None:
        """The new row, with `UNCHANGED` for values that were not sent; None after a DELETE or TRUNCATE."""
        if self.after_texts is None:
            return None
        typed = self._typed(self.after_texts)
        return {column.name: typed.get(column.name, UNCHANGED) for column in self.columns}

    @cached_property
    def key(self) -> dict[str, Any]:
        """The row's key: after the change, of a deleted row before it. Empty for a table without a key."""
        return self._typed(self.key_texts)

    @property
    def key_texts(self) -> Texts:
        """The texts of the key."""
        sent = {**(self.before_texts or {}), **(self.after_texts or {})}
        return {name: sent[name] for name in self.key_names if name in sent}

    @property
    def key_texts_before(self) -> Texts:
        """The texts of the key before the change, of an inserted row after it."""
        sent = {**(self.after_texts or {}), **(self.before_texts or {})}
        return {name: sent[name] for name in self.key_names if name in sent}

    def _typed(self, texts: Texts) -> dict[str, Any]:
        return {name: None if text is None else self._decoders[name](text) for name, text in texts.items()}

    @cached_property
    def _decoders(self) -> dict[str, Any]:
        return {column.name: decoder(*column.type) for column in self.columns}


@dataclass(frozen=True, slots=True)
class ChangedTransaction(Transaction):
    """One committed transaction with its changes, in their order.

    `changes` can be read more than once. Those of a large transaction are read from the lake while they are iterated.
    `cursor` is the position after this transaction: store it, and pass it as `after`.
    """

    changes: Iterable[Change]
    cursor: str


def lines(committed: ChangedTransaction) -> Iterator[str]:
    """Yield the lines of one transaction."""
    yield line({"kind": "transaction", **transaction_json(committed)})
    for each in committed.changes:
        yield line(change_fields(each))
    yield line({"kind": "end", "lsn": str(committed.lsn), "cursor": committed.cursor})


def change_fields(change: Change) -> Fields:
    """Return the fields of a change."""
    key, key_before = dict(change.key_texts), dict(change.key_texts_before)
    return {
        "kind": "change",
        "ordinal": change.ordinal,
        "op": change.op,
        "table": str(change.table),
        "key": key,
        "key_before": None if key_before == key or change.op == "insert" else key_before,
        "before": None if change.before_texts is None else dict(change.before_texts),
        "after": None if change.after_texts is None else dict(change.after_texts),
        "unchanged": list(change.unchanged),
    }
