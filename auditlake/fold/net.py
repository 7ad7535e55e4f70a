"""Net changes of a tail: the rules of the fold, as SQL that DuckDB and Spark both run. Pure.

A *fold* computes from a tail of one table's changes, those with commit LSN in (position, upto], the net changes of its
history, one row each, of a `RowKind`:
1. a close: an open version that ends, with LSN and operation; at most one row per key;
2. a birth or a version: a version that begins in the tail, still open or closed within it.

Rules, per key and transaction, in the order of (lsn, ordinal); a *birth* is the effect that creates a row of the key, a
*death* the one that ends it:
- all changes of a key in one transaction have one net result: a version if the key exists at its end, else none;
- a version ends at the next transaction that touches the key, so no period is empty;
- `_op` is the operation of the key's last birth in the transaction, `_end_op` that of its last death, else `update`;
- an open version ends in the first transaction that touches the key, unless its first effect there is a birth.

    tail of key 7 (open before)   lsn 10: update, update    lsn 20: delete, insert    lsn 30: delete
    closes                        _to_lsn 10, update
    versions                      [10, 20) update…delete    [20, 30) insert…delete

**Effects.** Each change has one or two effects on keys:

    insert                   birth
    update, key unchanged    new state
    update, key changed      death of the old key, birth of the new key
    delete                   death
    truncate                 death of every key that exists at its place

An effect is one row: the key, lsn, ordinal, xid, time, born, died, `op` (the `_op` or `_end_op` of a version that
begins or ends here) and the *payload*, from which the executor makes the values of a version. The effects of a key are
ordered by (lsn, ordinal). A TRUNCATE's deaths need the keys that were open before the tail: these are effects at lsn
`BEFORE`, neither born nor died, which `net` removes. `epoch` is the number of TRUNCATEs before the effect.

**Tables without a key.** REPLICA IDENTITY FULL sends the complete row with every UPDATE and DELETE, but not which of
several equal rows it was. The source does not distinguish them either, so the history uses a rule: the youngest copy,
by (`_from_lsn`, `_ordinal`), ends first. Copies are thus a stack, and `numbered` numbers them; row and number form the
key, and a copy that is born and dies in one transaction has no version. `began_lsn` and `began_ordinal` identify the
open version of a copy: no two versions of a table without a key have the same, because a change creates at most one row
and the snapshot numbers its rows. The rule depends only on the order of changes, so the history does not depend on
batch boundaries. Two rows are equal if the exact texts of all values are, with NULL equal to NULL.

    open before: x#1, x#2          oldest first
    insert x                       birth of x#3
    delete x                       death of x#3
    update x to y                  death of x#2, birth of y#1
    update x to x                  new state of x#1
    truncate                       death of all; the next copy of a row is number 1

**Unchanged TOAST.** The server does not send a long value that an UPDATE did not change. It is the value that the row
had before: `filled` takes it from the nearest earlier effect of the same row that sent it, the executor at last from
the open version. A row is a *chain* of effects: its birth by INSERT (or its open version), new states, moves from key
to key, its death. Without moves the effects of the key are enough: an INSERT has all values, so no value is taken from
an earlier row of the key. With moves the effects of a key are split into `lives`, from birth to death. A life that
begins with a move continues the life that the same change ended under the old key; the first life in that sequence
identifies the chain (`roots`).

    k1: insert(a) ── update('u') ── moved away       lives: [insert … moved], chain 1
    k2:                             moved here('u')          [moved here … ], chain 1: 'u' is what k1 had
    k1:                                    insert(b)         [insert], chain 2

**Stages** are in `fold.stages`, in DuckDB's dialect, and in Spark's in `stages_in_spark.sql`, which
`scripts/fold_stages.py` writes and a test compares. Words that begin with two underscores stand for lists of columns,
which depend on the table (`FoldColumns`). An executor nests the stages that its tail needs:

    one_role or roles → effects [→ numbered] [→ truncated] [→ lives → chained] [→ filled] [→ begun] → net → rows
    inserted, alone, if all changes are inserts
    last, instead of net and rows, if only what is open after the tail is wanted: the last effect of a key decides

The given `changes` have place, `op`, `had_old`, the key after (`a_k0`, …) and before (`b_k0`, …), and the payload.
Executors: `fold.in_duckdb`, `apply.fold` (Spark).

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Update", "Delete", "TupleData";
logical-replication-publication.html, "Replica Identity"
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

from auditlake.fold.stages import STAGES

BEFORE = 0
"""The lsn of an open version among effects; no commit has this LSN."""
ENDS = ("_to_lsn", "_to_time", "_end_op", "_end_xid", "_part")
"""Columns that change when a version is closed."""
PLACE = ("lsn", "ordinal", "xid", "time")
BEGAN = ("began_lsn", "began_ordinal")
CHAIN = ("chain_lsn", "chain_ordinal", "chain_born")
"""Columns that identify the chain of an effect."""
KIND = "~5fkind"
"""Column of the kind of a row; no column of a history has this name, an escape without need (`lake.column_names`)."""

SPARK_FILE = "stages_in_spark.sql"
_STAGE = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- |\Z)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\b__[a-z]+(?:_[a-z]+)*\b")


class RowKind(StrEnum):
    """Kind of a row that a fold returns."""

    CLOSE = "close"
    """The open version of this key ends."""
    BIRTH = "birth"
    """A version begins; no version of this key was open before the tail."""
    VERSION = "version"
    """A version begins."""


class Executor(StrEnum):
    """Engine that runs the SQL of a fold."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class FoldColumns:
    """Columns of a fold: the key's names, the payload, and the values that some change omits (`sent`).

    `numbers_copies`: the key is `row_id` and `copy`, that of a table without a key. `chain`: a row may move from key to
    key. `first_key`: names of the columns for the key that a row had at first; none if the executor does not need them.
    """

    executor: Executor
    key: tuple[str, ...]
    payload: tuple[str, ...]
    sent: tuple[str, ...] = ()
    numbers_copies: bool = False
    has_truncate: bool = False
    chain: tuple[str, ...] = ()
    first_key: tuple[str, ...] = ()

    def stage(self, name: str, source: str, **relations: str) -> str:
        """Return the SQL of a stage on `source`, a relation or a query in parentheses, and on other relations."""
        lists = self._lists() | {f"__{word}": relation for word, relation in relations.items()}
        return _expanded(stages_of(self.executor)[name], {**lists, "__source": source})

    def effects(self, changes: str, *, may_move: bool) -> str:
        """Return the effects of changes, on rows without their copy if copies are numbered.

        `may_move`: an UPDATE may change the key.
        """
        of_change = replace(self, key=("row_id",)) if self.numbers_copies else self
        with_role = of_change.stage("roles" if may_move or self.numbers_copies else "one_role", changes)
        return of_change.stage("effects", f"({with_role})")

    def after_truncates(self, effects: str, truncates: str) -> tuple["FoldColumns", str]:
        """Return the effects with the deaths of all TRUNCATEs; `effects` must have every open row."""
        return replace(self, has_truncate=False), self.stage("truncated", effects, truncates=truncates)

    def along_chains(self, lives: str, roots: str) -> tuple["FoldColumns", str]:
        """Return the effects with the chain of each life; `roots` as of `fold.chains.roots`."""
        return replace(self, chain=CHAIN), self.stage("chained", lives, roots=roots)

    def filled(self, effects: str) -> tuple["FoldColumns", str]:
        """Return the effects with each value as last sent for the row, and the row's first key if it is wanted."""
        return replace(self, payload=(*self.payload, *self.first_key)), self.stage("filled", effects)

    def net_rows(self, effects: str) -> str:
        """Return the net rows of effects."""
        return self.stage("rows", f"({self.stage('net', self._begun(effects))})")

    def last_rows(self, effects: str) -> str:
        """Return the net rows without the versions that end in the tail, and without the columns of an end."""
        return self.stage("last", self._begun(effects))

    def _begun(self, effects: str) -> str:
        return f"({self.stage('begun', effects)})" if self.numbers_copies else effects

    def _lists(self) -> dict[str, str]:
        began = BEGAN if self.numbers_copies else ()
        epoch = ("epoch",) if self.has_truncate else ()
        values = (*self.payload, *self.sent)
        nothing = [f"cast(null as {kind}) as {name}" for kind, name in zip(("bigint", "int"), began, strict=False)]
        last_sent = stages_of(self.executor)["last_sent"][len("select ") :]
        filled = [last_sent.replace("__one", name) for name in self.sent]
        first = zip(self.key, self.first_key, strict=False)
        filled += [f"first_value({name}) over until_here as {first_name}" for name, first_name in first]
        return {
            "__key": _list(self.key),
            "__key_after": _list(f"a_{name} as {name}" for name in self.key),
            "__key_of_role": _list(
                f"case when role = 'died' then b_{name} else a_{name} end as {name}" for name in self.key
            ),
            "__moved": " or ".join(f"a_{name} is distinct from b_{name}" for name in self.key),
            "__row": _list(self.chain or self.key),
            "__stack": _list(("row_id", *epoch)),
            "__place": _list(PLACE),
            "__values": _list(values),
            "__kept": _list((*self.payload, *self.chain)),
            "__filled": _list(filled),
            "__carried": _list((*values, *began, *epoch, *self.chain)),
            "__values_of_role": _list((*_when("role <> 'died'", values), *nothing, *epoch)),
            "__values_unless_death": _list((*_when("not is_death", values), *began)),
            "__values_unless_close": _list(_when("kind <> 'close'", values)),
            "__from_lsn": _begin("lsn", began),
            "__from_ordinal": _begin("ordinal", began),
        }


def _begin(name: str, began: Sequence[str]) -> str:
    """Return the expression of a version's begin; a close of a copy has that of the version that it ends."""
    return f"case when kind = 'close' then began_{name} else {name} end" if began else name


def _when(condition: str, names: Iterable[str]) -> Iterator[str]:
    return (f"case when {condition} then {name} end as {name}" for name in names)


def _list(columns: Iterable[str]) -> str:
    return ", ".join(columns)


@lru_cache
def stages_of(executor: Executor) -> Mapping[str, str]:
    """Return the stages of an executor by name."""
    if executor is Executor.DUCKDB:
        return STAGES
    text = files("auditlake.fold").joinpath(SPARK_FILE).read_text()
    return {name: sql.strip() for name, sql in _STAGE.findall(text)}


def _expanded(sql: str, lists: Mapping[str, str]) -> str:
    """Return SQL with a list in the place of each word; an empty list goes with one of the commas beside it."""
    for word in set(_WORD.findall(sql)):
        columns = lists[word]
        sql = re.sub(rf"\b{word}\b" if columns else rf",\s*{word}\b|\b{word}\b,?", columns, sql)
    return sql
