"""Masks of a lake: the rules it is captured under, and the rule of every column, recorded before its first value.

    masks.json           the rules in force, in the words of the settings, the strict tables, the fingerprint of the
                         secret, and the LSN from which they hold; `earlier` has those before
    masks/<oid>.json     of one table: its names, the numbers of columns that may have had a masked name, those of the
                         last message whose columns were certain, and of each column the attribute number, the names
                         and the rule

A rule belongs to a column, not to a name: a masked column that is renamed stays masked, in a renamed table too, and in
a partition that is detached and followed on its own. If the table was created again or belongs to another source, a
column of the same name counts as the same. A new column gets its rule when it is first seen, so its first value is
masked.

Some columns cannot be masked so that the history stays exact. Such a column has a *problem*; capture parks the table,
and copies refuse it. Withheld (NULL in `changes`; the state of a parked table is not shown) are the values of a column
  - without a rule in a strict table,
  - with a type that its rule does not fit,
  - of a message whose attribute numbers are not known, in a table with a masked column: every column of it,
  - that may have had a masked name in a message, or is new and has a lower number than one recorded before: columns are
    numbered in order. A copy records these if each has a rule, `keep` at least. So it does with new columns if a masked
    one is gone, as capture may still come to a message in which it had that name.
Masked are those of a column
  - whose rule would make keys equal,
  - that was recorded in the clear and got a name that a rule matches, whatever its name is then, until a copy replaces
    its rows.

No name tells which column a message of a table with a masked column has (`lake.column_identity.possible`): each of
its places may be one of several columns. The message is admitted if the rules of all of them do the same to the value.

The rules and the secret decide how a key is written, so the rule of a recorded column does not change, unless it is the
problem of a parked table. A start with rules that would change it is refused; other rules are recorded, with their
LSN, under the lock of capture: no capture that runs has other rules than the record. The record never has the secret.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from auditlake.errors import ConfigError
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.partition_records import read_roots
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_record, update_record, write_record
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.settings.mask_rules import MaskForm, Masking, Rule, parse_rule
from auditlake.store.place import Place
from auditlake.values.masks import WITHHELD, ColumnMask, secret_fingerprint

_HINT = "Restore the rules and the secret with which the lake was captured, or begin a new lake with these."
_RESTORE = "Restore it: it records what is masked."
_MAY_BE_ANOTHER = "it may be a masked column under another name, and a new copy needs a rule for it: keep if it is not"
_UNKNOWN = "which columns these are is not known, and one may be masked"
_Found = TypeVar("_Found")
_RULE_LACKS = "no rule of [mask] is for it, and its table is strict"


@dataclass(frozen=True, slots=True)
class _Column:
    """A recorded column; `rule` is None without one. `undecided`: it cannot be applied, so it may change.

    `gone`: the relation that was seen last lacks it. `exposed`: more was recorded of it before it had the rule.
    """

    attnum: int | None
    names: tuple[str, ...]
    rule: Rule | None
    undecided: bool = False
    gone: bool = False
    exposed: bool = False

    def is_same(self, column: Column) -> bool:
        if self.attnum is None or column.attnum is None:
            return column.name in self.names
        return self.attnum == column.attnum

    def shows_more(self, wanted: Rule | None) -> bool:
        """Return whether more was recorded of it than the rule of a name that it has, or had, allows."""
        if self.exposed or self.undecided:
            return self.exposed
        return _masking(wanted) is not None and not self.hides(wanted)

    def hides(self, wanted: Rule | None) -> bool:
        """Return whether its rule leaves no more of a value than another one."""
        return self.rule is not None and (self.rule == wanted or self.rule.form in {MaskForm.HASH, MaskForm.NULL})


@dataclass(frozen=True, slots=True)
class CatalogEntries:
    """Who wrote the catalog entry of each column, by number: its xmin; every commit that it shows is before `lsn`."""

    lsn: Lsn
    xmins: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Table:
    """A recorded table; names are oldest first.

    `suspects` are the numbers of columns that may have had a masked name, `certain` those of the last message whose
    columns were; `entries` were read before a later message, or will have been. `doubtful`, of an earlier release: any
    column that is not recorded is a suspect.
    """

    oid: int
    names: tuple[TableName, ...]
    columns: tuple[_Column, ...] = ()
    suspects: frozenset[int] = frozenset()
    certain: tuple[int, ...] = ()
    entries: tuple[CatalogEntries, ...] = ()
    doubtful: bool = False

    def content(self) -> dict[str, object]:
        columns = [{**asdict(c), "rule": c.rule and str(c.rule)} for c in self.columns]
        return {
            "oid": self.oid,
            "names": self.names,
            "columns": columns,
            "suspects": sorted(self.suspects),
            "certain": self.certain,
            "entries": [{"lsn": str(each.lsn), "xmins": each.xmins} for each in self.entries],
            "doubtful": self.doubtful,
        }

    def column(self, number: int) -> _Column | None:
        return next((column for column in self.columns if column.attnum == number), None)

    @property
    def former(self) -> dict[str, _Column]:
        """The masked column that had each name, the last one."""
        return {name: c for c in self.columns if _masking(c.rule) is not None for name in c.names}


def _table(content: Mapping[str, Any]) -> _Table:
    columns = tuple(
        _Column(
            c["attnum"],
            tuple(c["names"]),
            c["rule"] and parse_rule(c["rule"]),
            c["undecided"] is True,
            c.get("gone") is True,
            c.get("exposed") is True,
        )
        for c in content["columns"]
    )
    names = tuple(TableName(*name) for name in content["names"])
    suspects, certain = frozenset(map(int, content.get("suspects", ()))), tuple(map(int, content.get("certain", ())))
    entries = tuple(
        CatalogEntries(Lsn.parse(each["lsn"]), {int(number): str(xmin) for number, xmin in each["xmins"].items()})
        for each in content.get("entries", ())
    )
    return _Table(int(content["oid"]), names, columns, suspects, certain, entries, content.get("doubtful") is True)


@dataclass(frozen=True, slots=True)
class TableMasks:
    """Masks of a relation's columns, by name; `problems` are the reasons why it cannot be followed."""

    columns: Mapping[str, ColumnMask] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Masks:
    """The masks of one lake, for one process; `rules` are those in force."""

    def __init__(self, lake: Lake, rules: Masking, *, records: bool = True) -> None:
        """Open them; without `records` nothing is recorded.

        Raises ConfigError if the lake records other rules, LakeUnusable if a record cannot be read.
        """
        recorded = _read(lake)
        if (recorded is None and rules) or (recorded is not None and not _states(recorded, rules)):
            raise ConfigError("the rules of [mask] are not those that the lake records", _HINT)
        self._lake = lake
        self._rules = rules
        self._records = records
        self._tables = _read_tables(lake) if recorded is not None else {}
        self._known: dict[tuple[object, ...], TableMasks] = {}
        self._roots: Mapping[int, AbstractSet[int]] | None = None

    def __bool__(self) -> bool:
        """Return whether any column may be masked."""
        return bool(self._rules)

    def of(self, relation: Relation, *, copied: bool = False) -> TableMasks:
        """Return the masks of a relation, recorded by now if this process records them.

        Of a table that is `copied`, nothing in the clear is kept, so a column may become masked.
        """
        if not self:
            return TableMasks()
        shown = tuple((c.name, c.attnum, c.type_oid, _is_key(relation, c)) for c in relation.columns)
        asked = (relation.oid, relation.name, shown, copied)
        if (known := self._known.get(asked)) is not None:
            return known
        masks = self._bound(relation, copied=copied)
        # Problems end with a new snapshot, that another process may take; an unknown column may become doubtful.
        if not masks.problems and all(column.attnum is not None for column in relation.columns):
            self._known[asked] = masks
        return masks

    def _bound(self, relation: Relation, *, copied: bool) -> TableMasks:
        if any(column.attnum is None for column in relation.columns) and self.has_masked(relation):
            shown = [column.name for column in relation.columns]
            return TableMasks(dict.fromkeys(shown, WITHHELD), (f"columns {', '.join(shown)}: {_UNKNOWN}",))
        return self._change(relation.oid, partial(self._made, relation), partial(self._bind, relation, copied=copied))

    def _bind(self, relation: Relation, before: _Table, *, copied: bool) -> tuple[_Table, TableMasks]:
        """Return the record of a table with its columns, and their masks."""
        names = tuple(dict.fromkeys([*before.names, relation.name]))
        columns, masks, problems = list(before.columns), dict[str, ColumnMask](), list[str]()
        for column in relation.columns:
            at = _place(columns, column)
            known = columns[at] if at < len(columns) else None
            problem: str | None
            if self._is_withheld(before, relation, column, known, copied=copied):
                masks[column.name], problem = WITHHELD, _MAY_BE_ANOTHER
                columns[at : at + 1] = self._suspected(before, names, column, known)
            else:
                if known is None and (rule := self._masking_rule(before, names, column.name)):
                    known = _Column(column.attnum, (column.name,), rule)  # perhaps dropped, and added again
                entry, mask, problem = self._column(relation, names, column, known, copied=copied)
                columns[at : at + 1] = [entry]
                masks |= {column.name: mask} if mask is not None else {}
            problems += [f"column {column.name}: {problem}"] if problem is not None else []
        found = TableMasks(masks, tuple(problems))
        if copied and problems:  # it is refused
            return before, found
        return _seen(replace(before, names=names, columns=tuple(columns)), relation, copied=copied), found

    def _suspected(
        self, before: _Table, names: Sequence[TableName], column: Column, known: _Column | None
    ) -> list[_Column]:
        """Return what is recorded of a column that is withheld: a suspect with a masked name has its rule."""
        rule = self._masking_rule(before, names, column.name) if column.attnum in before.suspects else None
        if rule is None:
            return [] if known is None else [known]
        made = known or _Column(column.attnum, (), None)
        named = tuple(dict.fromkeys([*made.names, column.name]))
        return [replace(made, names=named, rule=_masking(made.rule) or rule)]

    def _is_withheld(
        self, before: _Table, relation: Relation, column: Column, known: _Column | None, *, copied: bool
    ) -> bool:
        """Return whether a column may be a masked one; a copy may take it if it has a rule."""
        last = max((c.attnum or 0 for c in before.columns), default=0) if before.former else 0
        numbers = {None, *(column.attnum for column in relation.columns)}
        lost = any(c.attnum not in numbers and not c.gone for c in before.former.values())
        is_suspect, is_new = column.attnum in before.suspects, known is None or known.attnum is None
        is_doubtful = is_new and (before.doubtful or (column.attnum or last) < last or (copied and lost))
        if not copied or not (is_suspect or is_doubtful):
            return is_suspect or is_doubtful
        names = [*before.names, relation.name]
        recorded = known if known is not None else before.former.get(column.name)
        is_ruled = _rule_of(recorded) is not None or self._rules.find(names, [column.name]) is not None
        return not is_ruled and (is_suspect or bool(before.former))

    def certain(self, oid: int) -> Sequence[int]:
        """Return the numbers of the columns of the last message of a table that was certain; nothing without one."""
        known = _read_table(self._lake.masks_of(oid))
        return known.certain if known is not None else ()

    def kept(self, oid: int, lsn: Lsn, now: CatalogEntries) -> frozenset[int]:
        """Return the columns whose entries are those that were read before the commit at `lsn`; keep some of `now`."""

        def keep(known: _Table) -> tuple[_Table, frozenset[int]]:
            before = [each for each in known.entries if each.lsn <= lsn][-1:]
            after = [each for each in known.entries if each.lsn > lsn]
            if not after and (not before or before[0].xmins != now.xmins):
                after = [now]
            same = frozenset(n for each in before for n, xmin in each.xmins.items() if now.xmins.get(n) == xmin)
            return replace(known, entries=(*before, *after)), same

        known = _read_table(self._lake.masks_of(oid))
        return frozenset() if known is None else self._change(oid, lambda: known, keep)

    def admit(self, relation: Relation, ways: Sequence[AbstractSet[int]], *, named: bool) -> tuple[int, ...] | None:
        """Return the numbers of a message's columns if its values are masked alike by all of its ways; else None.

        `ways` are the numbers that each column may have. A relation has those that its names suggest, if `named` the
        only ones that may be admitted. Other columns that may have had a masked name in it are suspects from now on.
        """
        numbers = tuple(column.attnum for column in relation.columns)
        is_only = bool(ways) and all(len(each) == 1 for each in ways)
        if is_only and not named:
            numbers = tuple(number for each in ways for number in each)
        if not ways or None in numbers:
            return None
        found = cast("tuple[int, ...]", numbers)

        def admitted(before: _Table) -> tuple[_Table, tuple[int, ...] | None]:
            if not all(
                number in each and len({self._effect(before, relation, n, column.name) for n in each}) == 1
                for number, each, column in zip(found, ways, relation.columns, strict=True)
            ):
                return before, None
            others = [each - {number} for number, each in zip(found, ways, strict=True)]
            suspected = self._with_suspects(before, relation, others)
            return replace(suspected, certain=found) if is_only else suspected, found

        return self._change(relation.oid, partial(self._made, relation), admitted)

    def doubt(self, relation: Relation, ways: Sequence[AbstractSet[int]]) -> None:
        """Record a message whose columns are not known: every one that may have a masked name in it is a suspect."""
        self._change(
            relation.oid,
            partial(self._made, relation),
            lambda before: (self._with_suspects(before, relation, ways), None),
        )

    def _with_suspects(self, before: _Table, relation: Relation, ways: Sequence[AbstractSet[int]]) -> _Table:
        names = [*before.names, relation.name]
        rules = [self._masking_rule(before, names, column.name) for column in relation.columns]
        new = {
            number
            for rule, each in zip(rules, ways, strict=True)
            for number in (each if rule is not None else ())
            if (known := before.column(number)) is None or not known.hides(rule)
        }
        return replace(before, suspects=before.suspects | new)

    def _masking_rule(self, before: _Table, names: Sequence[TableName], name: str) -> Rule | None:
        """Return the rule that a name has, or that the last masked column of that name had."""
        return _masking(self._rules.find(names, [name])) or _rule_of(before.former.get(name))

    def _effect(self, before: _Table, relation: Relation, number: int, name: str) -> object:
        """Return what would be done to a value of the column with a number, if it has this name: None if nothing."""
        known, names = before.column(number), [*before.names, relation.name]
        if number in before.suspects or (known is None and before.doubtful):
            return WITHHELD
        rule = self._rules.find(names, [name])
        if known is not None and known.undecided and not known.exposed:
            return _masking(rule or known.rule) or WITHHELD
        if known is not None:
            return _masking(rule if known.shows_more(rule) and not known.exposed else known.rule)
        masking = self._masking_rule(before, names, name)
        return WITHHELD if masking is None and rule is None and self._rules.is_strict(names) else masking

    def has_masked(self, relation: Relation) -> bool:
        """Return whether a column of the table was masked, or may have been, or has a name now that is."""
        return self._may_mask(self._recorded(relation), relation)

    def _may_mask(self, before: _Table, relation: Relation) -> bool:
        names = [*before.names, relation.name]
        found = any(_masking(self._rules.find(names, [column.name])) is not None for column in relation.columns)
        return found or bool(before.former or before.suspects or before.doubtful)

    def _column(
        self, relation: Relation, names: Sequence[TableName], column: Column, known: _Column | None, *, copied: bool
    ) -> tuple[_Column, ColumnMask | None, str | None]:
        """Return the record of a column, its mask, and its problem."""
        rule, problem = self._rule(names, column, known, copied=copied)
        key = _is_key(relation, column)
        if rule is not None and (unfit := rule.problem(column.type_oid, key=key)):
            problem = unfit
        withheld = problem is not None and (rule is None or rule.problem(column.type_oid, key=False) is not None)
        mask = None if rule is None or not rule.masks else ColumnMask(rule, column.type_oid, self._secret_of(rule))
        exposed = problem is not None and known is not None and not copied and known.shows_more(rule)
        kept = rule if problem is None or exposed else _rule_of(known)
        entry = _Column(
            known.attnum if column.attnum is None and known is not None else column.attnum,
            tuple(dict.fromkeys([*(known.names if known else ()), column.name])),
            kept,
            problem is not None,
            exposed=exposed,
        )
        return entry, WITHHELD if withheld else mask, problem

    def _rule(
        self, names: Sequence[TableName], column: Column, known: _Column | None, *, copied: bool
    ) -> tuple[Rule | None, str | None]:
        """Return the rule for the values of a column, and the problem that it has apart from its type and key."""
        wanted = self._rules.find(names, [column.name])
        if known is not None and known.shows_more(wanted):
            rule = known.rule if known.exposed else wanted
            if not copied:
                was = "in the clear" if known.exposed or known.rule is None else f"under {known.rule}"
                return rule, f"it was recorded {was}, and got a name that has the rule {rule}"
            is_corrected = rule is not None and (_masking(wanted) is None or rule.problem(column.type_oid, key=False))
            return wanted if wanted is not None and is_corrected else rule, None
        if known is None or known.undecided:
            rule = wanted or _rule_of(known)
            lacks = rule is None and self._rules.is_strict(names)
            return rule, _RULE_LACKS if lacks else None
        return known.rule, None

    def _secret_of(self, rule: Rule) -> bytes | None:
        return self._rules.secret if rule.form is MaskForm.HASH else None

    def _recorded(self, relation: Relation) -> _Table:
        """Return the record of a table; of one without, what it would be made of."""
        known = _read_table(self._lake.masks_of(relation.oid))
        return self._made(relation) if known is None else known

    def _made(self, relation: Relation) -> _Table:
        """Return the first record of a table with a new OID, made of the columns of tables that had its name.

        So it is of a table that was a partition, with the names of the tables of which it was one: the rules for these
        are its own. Without a column of the name that a masked one has there, any of its columns may be that one.
        """
        if self._roots is None:  # once: whoever copies new tables opens its masks for that
            self._roots = read_roots(self._lake)
        roots = [self._tables[oid] for oid in self._roots.get(relation.oid, ()) if oid in self._tables]
        namesakes = [table for table in self._tables.values() if relation.name in table.names]
        by_name: dict[str, _Column] = {}
        for column in (column for table in (*namesakes, *roots) for column in table.columns):
            for name in column.names:
                if name not in by_name or (column.rule is not None and column.rule.masks):
                    by_name[name] = replace(column, attnum=None, names=(name,))
        here = {column.name for column in relation.columns}
        shown = (by_name[column.name] for column in relation.columns if column.name in by_name)
        masked = tuple(column for column in shown if column.rule is not None and column.rule.masks)
        renamed = tuple(
            replace(column, attnum=None)
            for column in (column for table in roots for column in table.columns if not column.gone)
            if _masking(column.rule) is not None and here.isdisjoint(column.names)
        )
        names = tuple(dict.fromkeys(name for table in roots for name in table.names))
        return _Table(relation.oid, names, (*masked, *renamed), doubtful=bool(renamed))

    def _change(
        self, oid: int, made: Callable[[], _Table], change: Callable[[_Table], tuple[_Table, _Found]]
    ) -> _Found:
        """Replace the record of a table, the one that is made if it has none; return what `change` returns beside it.

        Capture, a bootstrap of new tables and a resync do so, one after the other.
        """
        answers = list[_Found]()

        def changed(recorded: _Table | None) -> object:
            before = made() if recorded is None else recorded
            table, answer = change(before)
            self._tables[oid] = table
            answers.append(answer)
            if table == before:
                return None
            self._known.clear()
            return table.content()

        place = self._lake.masks_of(oid)
        if self._records:
            update_record(self._lake, place, _table, changed, _RESTORE)
        else:
            changed(_read_table(place))
        return answers[-1]


def _place(columns: Sequence[_Column], column: Column) -> int:
    """Return the place of a column's record: by its number, else by its name; after all others without one."""
    same = [place for place, each in enumerate(columns) if each.is_same(column)]
    numbered = [place for place in same if columns[place].attnum == column.attnum]
    return next(iter([*numbered, *same]), len(columns))


def _seen(table: _Table, relation: Relation, *, copied: bool) -> _Table:
    """Return the record of a table after a relation."""
    numbers = {None, *(column.attnum for column in relation.columns)}
    now = replace(table, columns=tuple(replace(c, gone=c.attnum not in numbers) for c in table.columns))
    # The history has the columns that there were at the copy.
    return replace(now, suspects=now.suspects - numbers, certain=(), entries=(), doubtful=False) if copied else now


def _rule_of(column: _Column | None) -> Rule | None:
    return None if column is None else column.rule


def _is_key(relation: Relation, column: Column) -> bool:
    """Return whether a column is of the key; under FULL the stream flags every column."""
    return column.key and not (
        relation.replica_identity is ReplicaIdentity.FULL and all(each.key for each in relation.columns)
    )


def settle(lake: Lake, rules: Masking) -> None:
    """Record the rules of the settings, if the lake records others and no recorded column gets another.

    Raises:
        ConfigError: if a recorded column would get another rule, or the secret is another one.
        LakeConflict: if a capture is running with the rules recorded so far.
    """
    if not is_changed(lake, rules):
        return
    with hold(lake, "the rules of [mask]", Stage.CAPTURE):
        recorded = _read(lake)
        _require_same_effect(lake, recorded, rules)
        positions = read_positions(lake)
        lsn = str(positions.acknowledged if positions is not None else Lsn(0))
        earlier = [] if recorded is None else [*recorded["earlier"], {**recorded, "earlier": []}]
        content = {**_words(rules), "from_lsn": lsn, "earlier": earlier}
        write_record(lake, lake.mask_rules, content, durable=True)


def is_changed(lake: Lake, rules: Masking) -> bool:
    """Return whether the lake records other rules than these."""
    recorded = _read(lake)
    return bool(rules) if recorded is None else not _states(recorded, rules)


def check_effect(lake: Lake, rules: Masking) -> None:
    """Require that no recorded column gets another rule; raises ConfigError."""
    _require_same_effect(lake, _read(lake), rules)


def _require_same_effect(lake: Lake, recorded: Mapping[str, Any] | None, rules: Masking) -> None:
    tables = _read_tables(lake) if recorded is not None else {}
    hashed = any(c.rule is not None and c.rule.form is MaskForm.HASH for t in tables.values() for c in t.columns)
    mark = _mark(rules)
    if recorded is not None and hashed and recorded["fingerprint"] != mark:
        raise ConfigError(
            f"the secret of [mask] has the fingerprint {_short(mark)}, the lake was captured with"
            f" {_short(recorded['fingerprint'])}",
            _HINT,
        )
    for history in list_histories(lake):
        table = tables.get(history.oid)
        known = _of_history(history.name, history.oid, history.columns) if table is None else table
        for column in known.columns:
            _require_same(rules, known, column)


def _of_history(name: TableName, oid: int, columns: Iterable[Column]) -> _Table:
    """Return the record of a table that was copied in the clear."""
    found = (_Column(c.attnum, (*(former.name for former in c.former), c.name), None) for c in columns)
    return _Table(oid, (name,), tuple(found))


def _require_same(rules: Masking, table: _Table, column: _Column) -> None:
    now = [_masking(rules.rule_of(name, each)) for name in table.names for each in column.names]
    if column.undecided or _masking(column.rule) in now:
        return
    was, becomes = column.rule or "no rule", next((rule for rule in now if rule is not None), "no rule")
    raise ConfigError(
        f"column {column.names[-1]} of {table.names[-1]} was captured under {was}, [mask] has {becomes} for it",
        f"A key that is written in two ways would be two keys. {_HINT}",
    )


def _masking(rule: Rule | None) -> Rule | None:
    return rule if rule is not None and rule.masks else None


def masked_names(lake: Lake, history: HistoryTable) -> frozenset[str]:
    """Return every name of a table's masked columns, also of one of the same name; raises LakeUnusable."""
    names = set(history.known_as)
    found = [
        each for each in _read_tables(lake).values() if each.oid == history.oid or not names.isdisjoint(each.names)
    ]
    masked = (column for table in found for column in table.columns if _masking(column.rule) is not None)
    return frozenset(name for column in masked for name in column.names)


def _mark(rules: Masking) -> str | None:
    return None if rules.secret is None else secret_fingerprint(rules.secret)


def _short(mark: str | None) -> str:
    return "none" if mark is None else mark[:16]


def _words(rules: Masking) -> dict[str, object]:
    return {
        "rules": [[pattern, str(rule)] for pattern, rule in rules.rules],
        "strict": list(rules.strict),
        "fingerprint": _mark(rules),
    }


def _states(recorded: Mapping[str, Any], rules: Masking) -> bool:
    return all(recorded[name] == said for name, said in _words(rules).items())


def _read(lake: Lake) -> Mapping[str, Any] | None:
    """Read masks.json; None if nothing was ever masked."""
    names = ("rules", "strict", "fingerprint", "from_lsn", "earlier")
    return read_record(lake.mask_rules, lambda content: {name: content[name] for name in names}, _RESTORE)


def _read_tables(lake: Lake) -> dict[int, _Table]:
    found = (_read_table(place) for place in lake.masks.glob("*.json"))
    return {table.oid: table for table in found if table is not None}


def _read_table(place: Place) -> _Table | None:
    return read_record(place, _table, _RESTORE)
