"""Stage apply: fold captured changes into the histories, one commit per table.

    positions of histories ─┐                      ┌─▶ embedded_fold, DuckDB ─▶ files, deletion vectors ─┐ one commit:
                            ├─▶ find_tails ─▶ Tail ┤                                                     ├▶ versions and
    watermark of `changes` ─┘                      └─▶ tail_fold, Spark ─────▶ MERGE or REPLACE ON ──────┘ the position

Order of effects, for every table with a tail (others get no commit):
  1. Read its changes in (position, upto] from one version of `changes`, up to its watermark. A table that gets a new
     snapshot is folded up to an LSN up to which `changes` has every commit. So half a transaction is never folded.
  2. Fold them: in DuckDB if the tail is ordinary (`embedded_fold`), else in Spark (`tail_fold`). The engine `spark`
     leaves all tails to Spark and their commits to Delta's writers, `duckdb` parks the table of a tail for Spark.
  3. Add columns that the history lacks, NULL in every row, in a commit of their own.
  4. Commit the folded versions together with the new position (`merge`). For added columns, this commit also sets the
     values that older rows show in them, in open versions.
After a kill at any point, the next call finds the positions and continues; there is no other state. After a kill
between 3 and 4, the position is still before the added columns, so the same tail is found: its columns follow from
`changes` and `added` alone, and existing ones are not added again. Meanwhile a reader ignores columns younger than its
LSN and overlays the tail on the others, so that it returns the same rows before and after 3.

A table that cannot be folded is parked (`lake.parking`); all others continue.
  - If the tail is cut off before a change that it cannot follow (`Tail.refusal`), it is folded up to there.
  - If only the fold shows that a commit contradicts the history, or that a value cannot be read, bisection finds the
    first such commit. Each half is a fold and a commit, so the table is parked right before the commit that fails. A
    commit is blamed only if it fails alone, from the history right before it.
  - With `retry`, parked tables are tried again: by a new process, or when more is known about added columns.

Tables are independent and processed concurrently: without Spark two; with it as many as it has cores, at least two,
because the many small jobs of one MERGE leave half of even a small machine idle.
"""

from __future__ import annotations  # types of Spark are imported for mypy only

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from auditlake.apply.embedded_fold import NotFolded, merge_embedded
from auditlake.apply.errors import CannotFold
from auditlake.apply.large_rows import LargeRow, find_too_large, has_large_rows, heap_bytes, one_row_at_a_time
from auditlake.apply.merge import choose_plan, merge, reshape
from auditlake.apply.stopping import StoppableFolds
from auditlake.apply.tail_fold import fold_tail
from auditlake.apply.tails import Tail, find_commits, find_tails, open_log, read_watermark
from auditlake.apply.windows import Window
from auditlake.counters import Beat, Counter, beat, count, counted
from auditlake.delta.commit_failures import commit_conflicts, writing
from auditlake.engine import Engine
from auditlake.errors import LakeConflict, Unsupported
from auditlake.extras import SPARK
from auditlake.failpoints import After, reach
from auditlake.lake.histories import Histories
from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, is_held, park, read_parked, read_saved, unpark
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.schema.evolution import ANEW, NOT_ASKED
from auditlake.spark.planning import interpreted_if_wide
from auditlake.store.attempts import attempts
from auditlake.store.place import by_requests
from auditlake.values.types import is_built_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# More concurrent plans only cost memory of the driver.
_MOST_PARALLEL = 8
_ATTEMPTS = 10
_MOST_EMBEDDED = 2
"""DuckDB uses every core for one tail; the next one reads its files meanwhile."""
_PAUSE_S = 0.1
_WITH_SPARK = (
    "Start auditlake follow or auditlake apply with --engine auto, which folds them in Spark"
    f" ({SPARK.command}, if it is not installed)."
)

StartSpark = Callable[[], "SparkSession"]
"""Starts Spark, or returns the session that is running."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The LSN up to which `changes` was searched for a table's changes, and the table's position at that time.

    Valid only while the table is at this position: at any other, its history is a different one.
    """

    position: Lsn
    upto: Lsn


@dataclass(frozen=True, slots=True)
class FoldedBy:
    """The engine that folded a tail; `reason` is why it was not folded in this process."""

    engine: Engine
    reason: str = ""

    def __str__(self) -> str:
        name = "Spark" if self.engine is Engine.SPARK else "DuckDB"
        return f"{name}, because {self.reason}" if self.reason else name


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of a call: changes folded per table, the LSN up to which each is folded, and the tables parked now.

    `by` has the engine that folded each of them.
    """

    rows: Mapping[TableName, int]
    upto: Mapping[TableName, Reached]
    parked: Mapping[TableName, Parked] = field(default_factory=dict)
    by: Mapping[TableName, FoldedBy] = field(default_factory=dict)
    freed: frozenset[TableName] = frozenset()
    """Tables no longer parked: folded past the reason for parking, but not up to the limit yet."""


def apply_pending(  # noqa: PLR0913 - the task, and state of earlier calls
    start_spark: StartSpark,
    lake: Lake,
    upto: Lsn | None = None,
    known: Mapping[TableName, Reached] | None = None,
    *,
    retry: bool = True,
    histories: Histories | None = None,
    engine: Engine = Engine.AUTO,
    stop: threading.Event | None = None,
) -> Applied:
    """Fold every table up to `upto`, at most the watermark; `start_spark` is called only if a tail is left to Spark.

    `known` is the `upto` of an earlier call. No commit records up to where an idle table was searched, so without it
    all of `changes` above the table's position is searched again. With `retry`, tables parked by this stage are tried
    again, up to the commit they are parked for, even if the tail is longer. `histories` caches the tables from one call
    to the next. Raises Cancelled if `stop` is set while Spark folds.
    """
    watermark = read_watermark(lake)
    histories = histories or Histories(lake)
    tables, parked = read_saved(lake, histories)  # after the watermark, so that none is folded past its parking
    if watermark is None or not tables:
        return Applied({}, {})
    limit = watermark if upto is None else Lsn(min(upto, watermark))
    stopped = _find_stopped(lake, tables, parked, limit) if retry else []
    histories.forget({tail.table.name for tail in stopped})
    retried = _merge_some(start_spark, lake, stopped, engine, stop)
    freed = {tail.table.name: tail for tail in stopped if tail.table.name not in retried.stopped}
    find = partial(_find_followed, lake, known=known or {}, limit=limit, parked=parked)
    tables, tails = _find_due(lake, histories, tables, find)
    histories.forget({tail.table.name for tail in tails})
    merged = _merge_some(start_spark, lake, tails, engine, stop)
    rows = {tail.table.name: tail.shape.rows for tail in (*freed.values(), *tails) if tail.shape}
    parked_now = read_parked(lake, tables) if parked or merged.stopped else {}
    reached = _reached(lake, tables, tails, _ends(tables, limit, parked, parked_now))
    behind = freed.keys() | {name for name, parking in parked_now.items() if not parking.silent}
    searched = {name: place for name, place in reached.items() if name not in behind}
    return Applied(rows, searched, parked_now, retried.by | merged.by, frozenset(freed))


def _find_due(
    lake: Lake, histories: Histories, tables: list[HistoryTable], find: Callable[[list[HistoryTable]], list[Tail]]
) -> tuple[list[HistoryTable], list[Tail]]:
    """Find the tails of tables; return these as they were read for that, too."""
    tails = find(tables)
    if tails and by_requests(lake.root):  # histories of a store are those saved last: read the ones with changes
        names = {tail.table.name for tail in tails}
        tables = histories.current(lambda table: table.name in names)
        tails = find(tables)
    return tables, tails


def _ends(
    tables: Iterable[HistoryTable], limit: Lsn, before: Mapping[TableName, Parked], now: Mapping[TableName, Parked]
) -> dict[TableName, Lsn]:
    """Return up to where each table was searched; one that capture has released since, only up to its parking."""
    return {t.name: min(_end(limit, before.get(t.name)), _end(limit, now.get(t.name))) for t in tables}


def _reached(
    lake: Lake, tables: Sequence[HistoryTable], tails: Iterable[Tail], ends: Mapping[TableName, Lsn]
) -> dict[TableName, Reached]:
    """Return the position of each table after its tail was merged, and the LSN up to which it was searched."""
    positions = {table.name: table.position for table in tables}
    positions |= {tail.table.name: _position_after(lake, tail) for tail in tails if tail.shape or tail.is_reshaped}
    return {name: Reached(at, Lsn(max(ends[name], at))) for name, at in positions.items()}


def _position_after(lake: Lake, tail: Tail) -> Lsn:
    """Return the position of a table whose tail has been merged, with what follows a cut."""
    table = open_history(lake, tail.table.name) if tail.is_cut else None
    return tail.upto if table is None else table.position


@dataclass(frozen=True, slots=True)
class _Merged:
    """The tables parked while tails were merged, and who folded each tail."""

    stopped: dict[TableName, Parked] = field(default_factory=dict)
    by: dict[TableName, FoldedBy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Left:
    """A tail, or its rest, that this process does not fold, and the reason."""

    tail: Tail
    reason: str


def _merge_some(
    start_spark: StartSpark, lake: Lake, tails: list[Tail], engine: Engine, stop: threading.Event | None = None
) -> _Merged:
    if not tails:
        return _Merged()
    if engine is Engine.SPARK:
        by = dict.fromkeys((tail.table.name for tail in tails), FoldedBy(Engine.SPARK))
        return _Merged({each.table: each for each in merge_all(start_spark(), lake, tails, engine, stop)}, by)
    merge_here = _merge_embedded if engine is Engine.AUTO else _merge_without_spark
    with ThreadPoolExecutor(_MOST_EMBEDDED) as pool:
        ends = list(pool.map(lambda tail: merge_here(lake, tail), tails))
    by = dict.fromkeys((tail.table.name for tail in tails), FoldedBy(Engine.DUCKDB))
    left = [end for end in ends if isinstance(end, _Left)]
    by |= {each.tail.table.name: FoldedBy(Engine.SPARK, each.reason) for each in left}
    stopped = [end for end in ends if isinstance(end, Parked)]
    stopped += merge_all(start_spark(), lake, [each.tail for each in left], stop=stop) if left else []
    return _Merged({each.table: each for each in stopped}, by)


def _merge_embedded(lake: Lake, tail: Tail) -> _Left | Parked | None:
    """Merge a tail without Spark; return the rest that needs Spark, or the record that parks its table."""
    rest = tail
    try:
        with writing(f"the history of {tail.table.name}"):
            for rest in _to_limit(lake, tail):
                _commit_embedded(lake, rest)
    except NotFolded as exc:
        return _Left(rest, exc.reason)
    except CannotFold as exc:
        return _Left(rest, exc.what)
    return _record(lake, rest, _refused(rest))


def _merge_without_spark(lake: Lake, tail: Tail) -> Parked | None:
    """Merge a tail as far as it can be folded without Spark, and park its table if that is not the whole tail."""
    write = partial(_commit_embedded, lake)
    return _merge_to_limit(lake, tail, lambda part: _write_or_stop(lake, part, write))


def _merge_to_limit(lake: Lake, tail: Tail, merge: Callable[[Tail], Parked | None]) -> Parked | None:
    """Merge a tail part by part, until one returns the record that parks the table; record that, and return it."""
    with writing(f"the history of {tail.table.name}"):
        stopped = next(filter(None, map(merge, _to_limit(lake, tail))), None)
    return _record(lake, tail, stopped)


def _to_limit(lake: Lake, tail: Tail) -> Iterator[Tail]:
    """Yield a tail and, if it was cut, the rest up to its limit, part by part; each is read once the last is merged."""
    yield tail
    while tail.refusal is None and tail.is_cut and (following := _read_again(lake, tail, tail.limit)):
        (tail,) = following
        yield tail


def _write_or_stop(lake: Lake, tail: Tail, write: Callable[[Tail], None]) -> Parked | None:
    """Write a tail as far as it can be folded; return the record that parks the table if that is not all of it."""
    try:
        write(tail)
    except (NotFolded, CannotFold) as exc:
        if stopped := _stopped_before(lake, tail, exc, write):
            return stopped
    return _refused(tail)


def _commit_embedded(lake: Lake, tail: Tail) -> None:
    with _counted(tail, "duckdb"):
        _commit(merge_embedded, lake, tail)


def _end(limit: Lsn, parked: Parked | None) -> Lsn:
    return limit if parked is None else min(limit, parked.lsn)


def _find_followed(
    lake: Lake,
    tables: Iterable[HistoryTable],
    known: Mapping[TableName, Reached],
    limit: Lsn,
    parked: Mapping[TableName, Parked],
) -> list[Tail]:
    """Find the tails up to `limit` that begin above `known`; for a table parked by capture, up to the parking.

    `changes` is not opened if every table has been searched up to its end.
    """
    after = {table: _searched(table, known.get(table.name)) for table in tables}
    followed = [table for table in after if table.name not in parked or parked[table.name].silent]
    ends = {table: _end(limit, parked.get(table.name)) for table in followed}
    due = {end: {t: after[t] for t in followed if ends[t] == end and after[t] < end} for end in set(ends.values())}
    log = open_log(lake) if any(due.values()) else None
    return [] if log is None else [tail for end, tables in due.items() for tail in find_tails(lake, log, tables, end)]


def _find_stopped(
    lake: Lake, tables: Iterable[HistoryTable], parked: Mapping[TableName, Parked], limit: Lsn
) -> list[Tail]:
    """Find the tails of tables parked by this stage, each up to the commit it is parked for."""
    stopped = [table for table in tables if table.name in parked and not parked[table.name].silent]
    log = open_log(lake) if stopped else None
    if log is None:
        return []
    silent, tails = read_parked(lake, stopped, silent=True), list[Tail]()
    for table in stopped:
        upto = parked[table.name].until
        if upto <= _end(limit, silent.get(table.name)):
            tails += find_tails(lake, log, {table: table.position}, upto)
    return tails


def next_window(lake: Lake, after: Lsn | None, histories: Histories | None = None) -> Window | None:
    """Cut the backlog above `after`, or above the position of every table; None if there is nothing to apply to.

    Calling `apply_pending` window by window needs memory for one window at a time.
    """
    if after is not None and read_watermark(lake) == after:
        return Window(Lsn(after), 0, more=False)
    log = open_log(lake)
    if after is None:
        after = _least_position(lake, histories or Histories(lake))
    return None if log is None or after is None else log.window(after)


def _least_position(lake: Lake, histories: Histories) -> Lsn | None:
    """Return the least position from which to fold; tables parked by this stage are skipped if others exist."""
    tables, parked = read_saved(lake, histories)
    waiting = {name for name, parking in parked.items() if not parking.silent}
    followed = [table.position for table in tables if table.name not in waiting]
    return min(followed or (table.position for table in tables), default=None)


def fold_held(  # noqa: PLR0913, PLR0917 - how and how far to fold
    start_spark: StartSpark,
    lake: Lake,
    name: TableName,
    upto: Lsn,
    engine: Engine = Engine.AUTO,
    stop: threading.Event | None = None,
) -> Parked | None:
    """Fold one table up to `upto`, at most as far as the lake knows, even past the LSN at which it is parked.

    So it has the columns that it had then, although no commit followed their change: a new snapshot would begin them.

    `start_spark` is called only if the tail is left to Spark.

    Returns the record with which this stage parks it, if it cannot be folded that far.

    Raises Unsupported if only Spark can fold it, and the engine is DuckDB: a gap in its place would be for ever.
    Raises Cancelled if `stop` is set while Spark folds.
    """
    table, log = open_history(lake, name), open_log(lake)
    if table is None or log is None or table.position >= upto:
        return None
    tails = find_tails(lake, log, {table: table.position}, min(upto, log.known_lsn))
    stopped = _merge_some(start_spark, lake, tails, engine, stop).stopped.get(name)
    if stopped and stopped.needs_spark:
        raise Unsupported(str(stopped), "Run auditlake resync with --engine auto.")
    return stopped


def _searched(table: HistoryTable, reached: Reached | None) -> Lsn:
    if reached is None or reached.position != table.position:
        return table.position
    return max(table.position, reached.upto)


@dataclass(frozen=True, slots=True)
class _OnSpark:
    """A lake, and a session of Spark's own for the tail that is merged in it."""

    session: SparkSession
    lake: Lake
    engine: Engine
    folds: StoppableFolds


def merge_all(
    spark: SparkSession,
    lake: Lake,
    tails: list[Tail],
    engine: Engine = Engine.AUTO,
    stop: threading.Event | None = None,
) -> list[Parked]:
    """Merge tails with Spark; return the tables parked meanwhile. Raises other failures at the end.

    Raises Cancelled if `stop` is set meanwhile.
    """
    largest_first = sorted(tails, key=lambda tail: -(tail.shape.rows if tail.shape else 0))
    # The position is passed to the commit through settings of the session, so concurrent merges need own sessions.
    sessions: SimpleQueue[_OnSpark] = SimpleQueue()
    parallel = min(_MOST_PARALLEL, max(2, spark.sparkContext.defaultParallelism))
    folds = StoppableFolds(spark, stop)
    for _ in range(parallel):
        sessions.put(_OnSpark(spark.newSession(), lake, engine, folds))
    with folds.watched():
        with ThreadPoolExecutor(parallel) as pool:
            futures = [pool.submit(_merge_one, sessions, tail) for tail in largest_first if not has_large_rows(tail)]
        with ThreadPoolExecutor(1) as pool:
            futures += [pool.submit(_merge_one, sessions, tail) for tail in largest_first if has_large_rows(tail)]
    for failure in (failure for future in futures if (failure := future.exception())):
        raise failure
    return [stopped for future in futures if (stopped := future.result())]


def _merge_one(sessions: SimpleQueue[_OnSpark], tail: Tail) -> Parked | None:
    """Merge a tail as far as it can be folded, and park its table if that is not the whole tail."""
    run = sessions.get()
    try:
        with interpreted_if_wide(run.session, len(tail.columns)):
            return _merge_to_limit(run.lake, tail, partial(_merge_or_stop, run))
    finally:
        sessions.put(run)


def _record(lake: Lake, tail: Tail, stopped: Parked | None) -> Parked | None:
    """Park the table of a tail that was merged up to there, or end an earlier parking; return the record."""
    if stopped is not None:
        park(lake, stopped)
        reach(After.PARKED)
    else:
        unpark(lake, tail.table.name, Cause.APPLY)
    return stopped


def _merge_or_stop(run: _OnSpark, tail: Tail) -> Parked | None:
    if not has_large_rows(tail):
        return _fold_or_stop(run, tail)
    with one_row_at_a_time(run.session):
        return _fold_or_stop(run, tail)


def _merge_before(run: _OnSpark, tail: Tail, found: LargeRow) -> Parked:
    """Merge the changes before a row that is too large for the heap; return the record that parks the table."""
    for part in _read_again(run.lake, tail, Lsn(found.lsn - 1)):
        if stopped := _merge_or_stop(run, part):
            return stopped
    return Parked(tail.table.name, Cause.APPLY, Lsn(found.lsn - 1), found.lsn, found.reason, found.remedy)


def _fold_or_stop(run: _OnSpark, tail: Tail) -> Parked | None:
    if found := find_too_large(run.lake, tail, heap_bytes(run.session)):
        return _merge_before(run, tail, found)
    return _write_or_stop(run.lake, tail, partial(_merge_in, run))


def _stopped_before(
    lake: Lake, tail: Tail, failure: CannotFold | NotFolded, write: Callable[[Tail], None]
) -> Parked | None:
    """Fold all commits before the first that cannot be folded; return the record that parks the table there, if any."""
    if (found := _fold_before(lake, tail, failure, write)) is None:
        return None
    first, failure = found
    name, last, commit = tail.table.name, Lsn(first - 1), f"its changes in the commit at {first}"
    if isinstance(failure, NotFolded):
        reason = f"{commit} need Spark: {failure.reason}"
        return Parked(name, Cause.APPLY, last, first, reason, _WITH_SPARK, needs_spark=True)
    reason = f"{commit} cannot be applied: {failure.what}{_altered_types(tail)}"
    return Parked(name, Cause.APPLY, last, first, reason, ANEW, renewable=True)


def _refused(tail: Tail) -> Parked | None:
    """Return the record that parks a table at the change that its tail ends before; None if it ends before none."""
    if tail.refusal is None:
        return None
    reason, remedy = tail.refusal.message, tail.refusal.hint or ANEW
    renewable = tail.refusal.hint in {ANEW, NOT_ASKED}
    return Parked(tail.table.name, Cause.APPLY, tail.upto, Lsn(tail.upto + 1), reason, remedy, renewable=renewable)


def _altered_types(tail: Tail) -> str:
    """Describe the compared columns whose text may have changed since their rows were written."""
    compared = tail.table.key or tail.columns
    names = ", ".join(column.name for column in compared if not is_built_in(column.type_oid))
    return f"; the text of {names} changes when ALTER TYPE renames a label or adds an attribute" if names else ""


def _fold_before(
    lake: Lake, tail: Tail, failure: CannotFold | NotFolded, write: Callable[[Tail], None]
) -> tuple[Lsn, CannotFold | NotFolded] | None:
    """Fold all commits before the first that cannot be folded by itself; return its LSN and the reason.

    None if all were folded: then no commit caused the failure, but a lack of memory or another passing condition.
    """
    log = open_log(lake)
    commits = find_commits(log, tail) if log else []
    if not commits:
        raise failure
    first, last = 0, len(commits) - 1  # commits before `first` are folded; folding up to `last` fails
    while first <= last:
        middle = (first + last) // 2
        try:
            for part in _read_again(lake, tail, commits[middle]):
                write(part)
        except (CannotFold, NotFolded) as exc:
            if first == middle:
                return commits[first], exc
            last = middle
        else:
            first = middle + 1
            if first > last:
                last = len(commits) - 1
    return None


def _merge_in(run: _OnSpark, tail: Tail) -> None:
    """Merge a tail with Spark; raises LakeConflict, CannotFold, Cancelled."""

    def write(tail: Tail) -> None:
        folded = fold_tail(run.session, tail)
        if folded is None and not tail.is_reshaped:
            return
        if folded is None:
            reshape(tail)
        else:
            merge(tail, folded, choose_plan(tail, run.engine))
        reach(After.TABLE_MERGED)

    with _counted(tail, "spark"), run.folds.fold():
        _commit(write, run.lake, tail)


@contextmanager
def _counted(tail: Tail, engine: str) -> Iterator[None]:
    """Count the fold and the commit of a tail, unless it fails; while many tables are written, apply is alive."""
    with counted(Counter.APPLIED_BATCHES, Counter.APPLIED_SECONDS, engine):
        yield
    count(Counter.APPLIED_CHANGES, engine, tail.shape.rows if tail.shape else 0)
    count(Counter.COMMITS, "apply")
    beat(Beat.APPLY)


def _commit(write: Callable[[Tail], None], lake: Lake, tail: Tail) -> None:
    """Write a tail; plan it again, after growing pauses, if another commit was first. Raises LakeConflict."""
    hint = "Stop the other writer (auditlake maintain, for example), then start again."
    has_lost = False
    for _ in attempts(_ATTEMPTS, f"the history of {tail.table.name}", hint, pause_s=_PAUSE_S):
        if has_lost:  # files were compacted meanwhile; the position is the same
            again = _read_again(lake, tail, tail.upto)
            if not again:
                return
            (tail,) = again
        try:
            write(tail)
        except _lost_races() as exc:
            if isinstance(exc, LakeConflict) and not _is_resynced(lake, tail.table):
                raise
            count(Counter.RETRIES, "commit")
            has_lost = True
        else:
            return


def _lost_races() -> tuple[type[Exception], ...]:
    return (*commit_conflicts(), LakeConflict)


def _is_resynced(lake: Lake, table: HistoryTable) -> bool:
    """Return whether `resync` may have moved the position: it folds the table that it holds, and commits a snapshot."""
    now = open_history(lake, table.name)
    if now is None or now.resynced != table.resynced:
        return now is not None
    return is_held(lake, table)


def _read_again(lake: Lake, tail: Tail, upto: Lsn) -> list[Tail]:
    log, table = open_log(lake), open_history(lake, tail.table.name)
    return find_tails(lake, log, {table: table.position}, upto) if log and table else []
