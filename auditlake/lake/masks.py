"""Masks of a lake: the rules it is captured under, and the rule of every column, recorded before its first value.

    masks.json           the rules in force, in the words of the settings, the strict tables, the fingerprint of the
                         secret, and the LSN from which they hold; `earlier` has those before
    masks/<oid>.json     of one table: its names, whether an unknown column was seen since its last copy, and of each
                         column the attribute number, the names and the rule

A rule belongs to a column, not to a name: a masked column that is renamed stays masked, in a renamed table too. If
the table was created again or belongs to another source, a column of the same name counts as the same. A new column
gets its rule when it is first seen, so its first value is masked.

Some columns cannot be masked so that the history stays exact. Such a column has a *problem*; capture parks the table,
and copies refuse it. Withheld (NULL in `changes`; the state of a parked table is not shown) are the values of a column
  - without a rule in a strict table,
  - with a type that its rule does not fit,
  - of a message whose attribute numbers are not known, in a table with a masked column: every column of it,
  - that is new after such a message, as that may have had it under another name, or has a lower number than one
    recorded before: columns are numbered in order. A copy records these if each has a rule, `keep` at least. So it does
    with new columns if a masked one is gone, as capture may still come to a message in which it had that name.
Masked are those of a column
  - whose rule would make keys equal,
  - that was recorded in the clear and got a name that a rule matches, until a copy replaces its rows.

The rules and the secret decide how a key is written, so the rule of a recorded column does not change, unless it is the
problem of a parked table. A start with rules that would change it is refused; other rules are recorded, with their
LSN, under the lock of capture: no capture that runs has other rules than the record. The record never has the secret.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from auditlake.errors import ConfigError
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_record, write_record
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
_RULE_LACKS = "no rule of [mask] is for it, and its table is strict"


@dataclass(frozen=True, slots=True)
class _Column:
    """A recorded column; `rule` is None without one. `undecided`: it cannot be applied, so it may change.

    `gone`: the relation that was seen last lacks it.
    """

    attnum: int | None
    names: tuple[str, ...]
    rule: Rule | None
    undecided: bool = False
    gone: bool = False

    def is_same(self, column: Column) -> bool:
        if self.attnum is None or column.attnum is None:
            return column.name in self.names
        return self.attnum == column.attnum


@dataclass(frozen=True, slots=True)
class _Table:
    """A recorded table; names are oldest first. `doubtful`: a column that is not recorded may be a masked one."""

    oid: int
    names: tuple[TableName, ...]
    columns: tuple[_Column, ...] = ()
    doubtful: bool = False

    def content(self) -> dict[str, object]:
        columns = [{**asdict(c), "rule": c.rule and str(c.rule)} for c in self.columns]
        return {"oid": self.oid, "names": self.names, "columns": columns, "doubtful": self.doubtful}


def _table(content: Mapping[str, Any]) -> _Table:
    columns = tuple(
        _Column(
            c["attnum"],
            tuple(c["names"]),
            c["rule"] and parse_rule(c["rule"]),
            c["undecided"] is True,
            c.get("gone") is True,
        )
        for c in content["columns"]
    )
    names = tuple(TableName(*name) for name in content["names"])
    return _Table(int(content["oid"]), names, columns, content.get("doubtful") is True)


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
        before = self._recorded(relation)
        former = {name: c for c in before.columns if c.rule is not None and c.rule.masks for name in c.names}
        names = tuple(dict.fromkeys([*before.names, relation.name]))
        if any(column.attnum is None for column in relation.columns) and (former or self._finds(names, relation)):
            self._record(before, replace(before, names=names, doubtful=True))
            shown = [column.name for column in relation.columns]
            return TableMasks(dict.fromkeys(shown, WITHHELD), (f"columns {', '.join(shown)}: {_UNKNOWN}",))
        columns, masks, problems = list(before.columns), dict[str, ColumnMask](), list[str]()
        last = max((c.attnum or 0 for c in columns), default=0) if former else 0
        numbers = {None, *(column.attnum for column in relation.columns)}
        lost = any(c.attnum not in numbers and not c.gone for c in former.values())
        for column in relation.columns:
            at = next((place for place, each in enumerate(columns) if each.is_same(column)), len(columns))
            known = columns[at] if at < len(columns) else None
            is_ruled = column.name in former or self._rules.find(names, [column.name]) is not None
            is_new = known is None or known.attnum is None
            is_doubtful = is_new and (before.doubtful or (column.attnum or last) < last or (copied and lost))
            if is_doubtful and not (copied and (is_ruled or not former)):
                masks[column.name] = WITHHELD
                problems.append(f"column {column.name}: {_MAY_BE_ANOTHER}")
                continue
            if known is None and column.name in former:  # dropped, and added again
                known = replace(former[column.name], attnum=column.attnum, names=(column.name,))
            entry, mask, problem = self._column(relation, names, column, known, copied=copied)
            columns[at : at + 1] = [entry]
            if mask is not None:
                masks[column.name] = mask
            if problem is not None:
                problems.append(f"column {column.name}: {problem}")
        if not copied or not problems:  # a copy with problems is refused
            known_now = tuple(replace(c, gone=c.attnum not in numbers) for c in columns)
            self._record(before, _Table(relation.oid, names, known_now, before.doubtful and not copied))
        return TableMasks(masks, tuple(problems))

    def has_masked(self, relation: Relation) -> bool:
        """Return whether a column of the table was masked, or has a name now that is."""
        before = self._recorded(relation)
        masked = any(_masking(column.rule) is not None for column in before.columns)
        return masked or self._finds([*before.names, relation.name], relation)

    def _finds(self, names: Sequence[TableName], relation: Relation) -> bool:
        return any(_masking(self._rules.find(names, [column.name])) is not None for column in relation.columns)

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
        is_clear = known is not None and known.rule is None and not known.undecided and not copied
        kept = rule if problem is None and not is_clear else _rule_of(known)
        entry = _Column(
            known.attnum if column.attnum is None and known is not None else column.attnum,
            tuple(dict.fromkeys([*(known.names if known else ()), column.name])),
            kept,
            problem is not None and not is_clear,
        )
        return entry, WITHHELD if withheld else mask, problem

    def _rule(
        self, names: Sequence[TableName], column: Column, known: _Column | None, *, copied: bool
    ) -> tuple[Rule | None, str | None]:
        """Return the rule for the values of a column, and the problem that it has apart from its type and key."""
        wanted = self._rules.find(names, [column.name])
        if known is None or known.undecided:
            rule = wanted or _rule_of(known)
            lacks = rule is None and self._rules.is_strict(names)
            return rule, _RULE_LACKS if lacks else None
        if known.rule is None and wanted is not None and wanted.masks:
            return wanted, None if copied else f"it was recorded in the clear, and its name now has the rule {wanted}"
        return known.rule, None

    def _secret_of(self, rule: Rule) -> bytes | None:
        return self._rules.secret if rule.form is MaskForm.HASH else None

    def _recorded(self, relation: Relation) -> _Table:
        """Return the record of a table; for a new OID, one made of the columns of tables that had its name."""
        place = self._lake.masks_of(relation.oid)  # bootstrap and capture both record tables
        if (known := _read_table(place)) is not None:
            return known
        namesakes = [table for table in self._tables.values() if relation.name in table.names]
        by_name: dict[str, _Column] = {}
        for column in (column for table in namesakes for column in table.columns):
            for name in column.names:
                if name not in by_name or (column.rule is not None and column.rule.masks):
                    by_name[name] = replace(column, attnum=None, names=(name,))
        shown = (by_name[column.name] for column in relation.columns if column.name in by_name)
        masked = tuple(column for column in shown if column.rule is not None and column.rule.masks)
        return _Table(relation.oid, (), masked)

    def _record(self, before: _Table, table: _Table) -> None:
        if before != table and self._records:
            write_record(self._lake, self._lake.masks_of(table.oid), table.content(), durable=True)
        self._tables[table.oid] = table


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
