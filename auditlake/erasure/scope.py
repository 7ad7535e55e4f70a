"""What an erasure concerns: the row under all keys that it had, its versions and changes; and why it is refused.

An erasure begins at the source. A value that PostgreSQL still has would come back with the next change or snapshot, and
a history without it would not be the database's. So a row must first be deleted there, or a value of a column be
replaced or set to NULL, and that change be applied. No later change has the values then, unless somebody writes them to
the source again, which is a new fact and not the erased one.

The row is what `auditlake row TABLE KEY` shows: every row that ever had the key, under all keys that these rows had.

A table without a key is a multiset, whose fold compares whole rows. An erasure names rows by values in some columns, so
it removes all copies of a row or none, and the fold of the other rows stays the same. Two erasures would change that
fold, and are refused: of single columns, because different rows would become equal, and of rows that an UPDATE changed
from or into others, because the change belongs to both.

Everything is checked before the first effect.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from auditlake.audit.changes import RowChange, change_of, changes_of, in_changes, key_places, linked_changes
from auditlake.audit.columns_over_time import with_key
from auditlake.audit.history_conditions import in_history, types_over_time
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_key import GivenKey, Key, parse_key
from auditlake.audit.touched_rows import lsns_of_changes
from auditlake.audit.versions import Version, history_texts, versions_from, versions_of
from auditlake.erasure.holding import require_not_held, require_reason
from auditlake.erasure.matching import Places, require_one_text
from auditlake.errors import BadUsage, LakeUnusable, NotAnswerable, Unsupported
from auditlake.instants import to_us
from auditlake.lake.erasures import Erasure, last_in_log
from auditlake.lake.history import HistoryTable
from auditlake.lake.key_tokens import token
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.relation import TableName
from auditlake.sql_names import standard_identifier
from auditlake.temporal.table_lookup import split_name

_MOST_KEYS = 1000
_TEXTS = frozenset({25, 1043})
"""text and varchar: their histories have texts of any length."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An erasure as it was typed; without columns the whole row. `where`: COLUMN=VALUE, in place of a key."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    reason: str
    by: str
    where: tuple[str, ...] = ()


def find_scope(lake: Lake, wanted: Wanted, now: datetime, secret: bytes) -> Erasure:
    """Return the record of an erasure, without a number; nothing is written. `secret` is that of the lake's tokens.

    Raises BadUsage, ConfigError if the row is held, NotAnswerable and Unsupported.
    """
    require_reason(wanted.reason)
    reader = Reader(lake, now)
    upto = reader.known.last_lsn
    table, where = _place(reader, wanted, upto)
    given = parse_key(table, wanted.where or wanted.key)
    stored = _stored(reader, table, wanted.columns, upto)
    _require_certain(reader, table, stored, upto)
    found = _find(reader, table, given, upto, by_values=bool(where))
    tokens = tuple(sorted(token(secret, table.name, (*where, *key)) for key in found.keys))
    require_not_held(lake, table, tokens)
    found.require_applied(table)
    found.require_ended_at_source(table, sorted({reader.own_names(table)[name] for name in stored}))
    from_lsn, to_lsn = found.span(upto)
    return Erasure(
        number=-1,
        table=table.name.table,
        schema=table.name.schema,
        tokens=tokens,
        columns=wanted.columns,
        stored=stored,
        upto_lsn=int(table.position),
        kept=found.kept(),
        from_lsn=from_lsn,
        to_lsn=to_lsn,
        versions=len(found.past),
        changes=len(found.changes),
        reason=wanted.reason,
        by=wanted.by,
        time_us=to_us(now),
        where=where,
        replaced_keys=_replaced_keys(secret, table, found, stored),
        is_dropped=found.is_dropped,
        after=table.erased,
        log_after=min(map(last_in_log, (lake.changes, lake.transactions))),
    )


def _place(reader: Reader, wanted: Wanted, upto: Lsn) -> tuple[HistoryTable, tuple[str, ...]]:
    """Return the table, keyed by the columns that name its rows here, and these if they are not its own key."""
    table = reader.keyed_at(_named(reader, wanted.table, upto), upto)
    _require_plain(reader, table, upto)
    where = _where(reader, table, wanted, upto)
    return found_by(table, where), where


def _replaced_keys(secret: bytes, table: HistoryTable, found: "_Found", stored: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens of the keys that PostgreSQL no longer has, if columns of the key are erased."""
    if not any(column.stored in stored for column in table.key):
        return ()
    return tuple(sorted(token(secret, table.name, key) for key in found.gone_keys))


def _find(reader: Reader, table: HistoryTable, given: GivenKey, upto: Lsn, *, by_values: bool) -> "_Found":
    """Find the row with a key, or all rows with some values; report what may have to be erased besides.

    Raises NotAnswerable if there is none, Unsupported.
    """
    found = (_Found.by_values if by_values else _Found.of)(reader, table, given.key, upto)
    if reader.expired and not by_values:
        say(f"the changes up to {reader.expired} have expired: if the row had another key then, erase that, too")
    if not found.versions and not found.changes:
        given.check_absent()
        what = "these values" if by_values else "this key"
        raise NotAnswerable(f"no row of {table.label} ever had {what}", "auditlake row shows what is known of a row.")
    if given.other_texts:
        say(f"equal values can have another text ({given.columns_in_doubt}): erase the rows under each of these, too")
    return replace(found, is_dropped=table.name in reader.known.ends)


def _named(reader: Reader, name: str, upto: Lsn) -> HistoryTable:
    """Find a table by its name; with `@OID` after it, one that had the name which another has now. Report such a one.

    Raises BadUsage, NotAnswerable.
    """
    try:
        table = reader.table(name, upto)
    except BadUsage:
        *schema, last = split_name(name)
        plain, _, oid = last.rpartition("@")
        if not plain or not oid.isdecimal():
            raise
        had = reader.known.had(reader.named(standard_identifier(*schema, plain)))
        if (former := next((each for each in had if each.oid == int(oid)), None)) is None:
            raise
        return former
    called = reader.named(name)
    for each in reader.known.had(called):
        if each.name != table.name:
            other = TableName(called.schema, f"{called.table}@{each.oid}")
            say(f"another table was called {called}, too: to erase from that, name it {other}")
    return table


def found_by(table: HistoryTable, where: Sequence[str]) -> HistoryTable:
    """Return a table with the columns as its key by which an erasure finds rows, given by stored name."""
    return replace(table, columns=with_key(table.columns, where)) if where else table


def places_of(reader: Reader, table: HistoryTable, erasure: Erasure) -> Mapping[int, Places]:
    """Return where each relation version of a table has its key, and the erased columns."""
    relations = reader.relations_of(table)
    names = [column.name for column in table.key]
    own_names = reader.own_names(table)
    if missing := sorted({*erasure.stored} - own_names.keys()):
        raise LakeUnusable(f"{table.path} lacks {', '.join(missing)}, which erasures/ names", "Restore both.")
    own = {own_names[name] for name in erasure.stored}
    found = {}
    for number, places in key_places(relations, names).items():
        columns = relations[number].columns
        gone = {place: column.name for place, column in enumerate(columns) if column.name in own}
        found[number] = Places(places, gone)
    return found


def _require_plain(reader: Reader, table: HistoryTable, upto: Lsn) -> None:
    if not table.as_made:
        raise Unsupported(
            f"another program has given the history of {table.label} table features", "Undo that, then erase."
        )
    if (changed := reader.rekeyed_at(table, upto)) is not None:
        raise Unsupported(
            f"the columns that identify a row of {table.label} changed at {changed}",
            "Its rows cannot be found by one key. docs/proof-and-erasure.md, Erasure, has what to do instead.",
        )
    require_one_text(table)


def _require_certain(reader: Reader, table: HistoryTable, stored: Sequence[str], upto: Lsn) -> None:
    """Require that each change shows which of its values are the key's, and those to erase; raises Unsupported."""
    own, shapes = reader.own_names(table), reader.shapes_of(table)
    concerned = {*(column.name for column in table.key), *(own[name] for name in stored)}
    doubted = ", ".join(
        str(version.number)
        for version in shapes.shapes.versions
        if any(_is_in_doubt({own[name] for name in names}, concerned) for names in shapes.which_may_be(version))
    )
    if not doubted:
        return
    lsns = lsns_of_changes(reader, [table], Span(Lsn(0), upto), f"relation in ({doubted}) and op <> 'truncate'")
    if lsns:
        raise Unsupported(
            f"which columns the rows of {table.label} have that changed at {Lsn(min(lsns))} is not known",
            "Values would stay in them. docs/proof-and-erasure.md, Erasure, has what to do instead.",
        )


def _is_in_doubt(names: Collection[str], concerned: set[str]) -> bool:
    return len(names) > 1 and not concerned.isdisjoint(names)


def _where(reader: Reader, table: HistoryTable, wanted: Wanted, upto: Lsn) -> tuple[str, ...]:
    """Return the columns, by stored name, whose values the wanted rows of a table without a key had."""
    if table.key:
        if wanted.where:
            key = ", ".join(column.name for column in table.key)
            raise BadUsage(f"{table.label} has a key: {key}", "Give the key of the row in place of --where.")
        return ()
    names = [name for name, equals, _ in (each.partition("=") for each in wanted.where) if equals]
    if wanted.key or not names or len(names) < len(wanted.where):
        raise BadUsage(f"{table.label} has no key", "Name rows by values that they had: --where COLUMN=VALUE.")
    if wanted.columns:
        raise Unsupported(
            f"{table.label} has no key, so rows that differ in {', '.join(wanted.columns)} alone would become equal",
            "Leave out --columns to erase the whole rows.",
        )
    begins, found = reader.shapes_of(table).begins, set[str]()
    for name in names:
        physical = reader.physical_columns(table, name, upto)
        if len(physical) > 1 or any(begins.get(each, upto) for each in physical):
            raise Unsupported(
                f"{name} of {table.label} was added or got another type since the first copy",
                "Name rows by columns that they always had.",
            )
        found |= physical
    if len(found) < len(names):
        raise BadUsage(f"--where has a column of {table.label} twice", "No row has two values in one column.")
    return tuple(sorted(found))


def _stored(reader: Reader, table: HistoryTable, columns: Sequence[str], upto: Lsn) -> tuple[str, ...]:
    typed = (each for column in table.key for each in types_over_time(table, column))
    keys = {column.stored for column in typed if column.type_oid not in _TEXTS}
    found: set[str] = set()
    for name in columns:
        physical = reader.physical_columns(table, name, upto)
        if physical & keys:
            raise BadUsage(
                f"{name} is part of the key of {table.label}, and not of a type that can have a token in its place",
                "Leave out --columns to erase the whole row.",
            )
        found |= physical
        own = reader.own_names(table)
        if others := sorted({own[each] for each in reader.shapes_of(table).stored_under(name) - physical}):
            say(f"{table.label} had another column {name}, which is {', '.join(others)} now: erase that, too")
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class _Found:
    """The keys, versions and changes of a row; once its table was dropped, PostgreSQL has none of them."""

    keys: frozenset[Key]
    versions: Sequence[Version]
    changes: Sequence[RowChange]
    names: tuple[str, ...]
    is_dropped: bool = False

    @classmethod
    def of(cls, reader: Reader, table: HistoryTable, key: Key, upto: Lsn) -> "_Found":
        """Follow changes of the key, in both directions."""
        names = tuple(column.name for column in table.key)
        if reader.changes is None:
            return cls(frozenset({key}), versions_of(reader, table, [key], upto), [], names)
        keys, rows = linked_changes(reader, table, Span(Lsn(0), upto), {key}, _MOST_KEYS)
        if len(keys) > _MOST_KEYS:
            raise Unsupported(f"rows of {table.label} exchange their keys", "Erase the whole table's rows singly.")
        in_order = rows.sort_by([("lsn", "ascending"), ("ordinal", "ascending")]).to_pylist()
        changes = [change_of(row, reader) for row in in_order if row["op"] != "truncate"]
        return cls(frozenset(keys), versions_of(reader, table, keys, upto), changes, names)

    @classmethod
    def by_values(cls, reader: Reader, table: HistoryTable, values: Key, upto: Lsn) -> "_Found":
        """Find the rows of a table without a key that had these values, in the columns that are its key here.

        Raises Unsupported if one of these rows became another, or another one of these.
        """
        names = tuple(column.name for column in table.key)
        condition = in_changes(table, reader.relations_of(table), [values])
        changes = [*changes_of(reader, table.name, Span(Lsn(0), upto), condition)]
        for each in changes:
            if each.op == "update" and each.key_before(names) != each.key_after(names):
                raise Unsupported(
                    f"the update at {each.lsn} changed {', '.join(names)} of a row of {table.label}, which has no key",
                    "Name rows by columns that no update changed.",
                )
        read = versions_from(table, history_texts(reader, table, in_history(table, values)))
        versions = [version for version in read if tuple(version.values[name] for name in names) == values]
        return cls(frozenset({values}), versions, changes, names)

    @property
    def open(self) -> list[Version]:
        """Return the versions that PostgreSQL has now."""
        return [] if self.is_dropped else [version for version in self.versions if version.end is None]

    @property
    def past(self) -> list[Version]:
        """Return the other versions."""
        return [version for version in self.versions if self.is_dropped or version.end is not None]

    def span(self, upto: Lsn) -> tuple[int, int]:
        """Return the first and the last LSN of the past; versions that a dropped table had last end after `upto`."""
        lsns = [*(change.lsn for change in self.changes), *(version.begin.lsn for version in self.past)]
        ends = (upto + 1 if version.end is None else version.end.lsn for version in self.past)
        return min(lsns), max([*lsns, *ends])

    def require_applied(self, table: HistoryTable) -> None:
        """Require that the history has all changes of the row; raises NotAnswerable."""
        if any(change.lsn > table.position for change in self.changes):
            raise NotAnswerable(
                f"changes of this row of {table.label} are not applied yet, its position is {table.position}",
                "Run auditlake follow --until-current, then this again.",
            )

    def require_ended_at_source(self, table: HistoryTable, columns: Sequence[str]) -> None:
        """Require that PostgreSQL no longer has the row, or the values of `columns`; raises NotAnswerable."""
        if self.open and not columns:
            raise NotAnswerable(
                f"PostgreSQL still has the row of {table.label}, so it would come back",
                "Delete it there, let auditlake follow apply that, then run this again; or erase some --columns.",
            )
        if not self._has_past:
            raise NotAnswerable(
                f"the lake has nothing of this row of {table.label} but what PostgreSQL has now",
                "Change it there, let auditlake follow apply that, then run this again.",
            )
        for version in self.open:
            still = [name for name in columns if self._is_still(name, version)]
            if still:
                raise NotAnswerable(
                    f"PostgreSQL still has the value of {', '.join(still)} in the row of {table.label}",
                    "Change it there, let auditlake follow apply that, then run this again.",
                )

    @property
    def _has_past(self) -> bool:
        """Return whether a version has ended, or a change has another row than the one that PostgreSQL has now."""
        kept = self.kept()
        others = (each.before is not None or (each.lsn, each.ordinal) not in kept for each in self.changes)
        return bool(self.past) or any(others)

    def _is_still(self, name: str, version: Version) -> bool:
        """Return whether an open version has an ended value of a column; of a key, only whole keys that ended go."""
        if name not in self.names:
            ended = {each.values.get(name) for each in self.past}
            return version.values.get(name) in ended - {None}
        gone = {key[self.names.index(name)] for key in self.gone_keys}
        return not gone or version.values.get(name) in gone

    @property
    def gone_keys(self) -> frozenset[Key]:
        """Return the keys that PostgreSQL no longer has."""
        return self.keys - {version.key for version in self.open}

    def kept(self) -> tuple[tuple[int, int], ...]:
        """Return the changes whose new row is the one that PostgreSQL has now."""
        found = []
        for version in self.open:
            of_commit = [each for each in self.changes if each.lsn == version.begin.lsn and each.after is not None]
            own = [each for each in of_commit if each.key_after(self.names) == version.key]
            found += [(int(own[-1].lsn), own[-1].ordinal)] if own else []
        return tuple(found)
