"""The mutations: each breaks one rule of the design, in as little code as possible."""

from dataclasses import dataclass
from enum import Enum, auto

from tests.torture.source_edits import Edit


class Stage(Enum):
    """The scenario that a mutation runs in."""

    CAPTURE = auto()
    BOOTSTRAP = auto()
    RESHAPED = auto()
    APPLY = auto()
    ERASED = auto()


@dataclass(frozen=True)
class Mutation:
    """Edits of the source, and the scenario that must fail with them.

    `tables` are the tables whose histories show it; all if empty.
    """

    name: str
    stage: Stage
    edits: tuple[Edit, ...]
    tables: tuple[str, ...] = ()


def _capture(name: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(name, Stage.CAPTURE, tuple(Edit(*edit) for edit in edits))


def _bootstrap(name: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(name, Stage.BOOTSTRAP, tuple(Edit(*edit) for edit in edits))


def _reshaped(name: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(name, Stage.RESHAPED, tuple(Edit(*edit) for edit in edits))


def _erased(name: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(name, Stage.ERASED, tuple(Edit(*edit) for edit in edits))


def _apply(name: str, tables: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(name, Stage.APPLY, tuple(Edit(*edit) for edit in edits), tuple(tables.split()))


def _apply_by_spark(name: str, tables: str, *edits: tuple[str, str, str]) -> Mutation:
    """Have Spark fold every tail, not only those that do not fit into memory."""
    return _apply(name, tables, *edits, (f"{_EMBEDDED}:is_ordinary", "", "return False"))


def _by_both(name: str, tables: str, *edits: tuple[str, str, str]) -> tuple[Mutation, Mutation]:
    """Break a rule of the fold, which must show in each executor: it is written once for both."""
    return _apply(f"in DuckDB: {name}", tables, *edits), _apply_by_spark(f"in Spark: {name}", tables, *edits)


_CAPTURE = "capture.capture:Capture"
_WRITER = "capture.capture:_Writer"
_LOG = "capture.change_log:CaptureLog"
_DECODER = "pgoutput.batch_decoder:_changes"
_DDL = "capture.ddl_recorder:DdlRecorder"
_STAGES = "fold.stages"
_EMBEDDED = "apply.embedded_fold"
_MARK = "apply.deletion_vector_writer"
_REPLACE = "new java.nio.file.CopyOption[] {java.nio.file.StandardCopyOption.REPLACE_EXISTING}"
_MOVE = f"Files.move(unfinished, entry, {_REPLACE});"

MUTATIONS = (
    _capture(
        "acknowledge before the commit",
        (
            f"{_CAPTURE}._submit",
            "self._writer.write(_1, _2)",
            "(self._stream.acknowledge(wal_end(self._control).lsn), self._writer.write(_1, _2))",
        ),
    ),
    _capture(
        "record the end LSN as commit LSN",
        (_DECODER, "spans.lsn[rows.transaction]", "spans.lsn[rows.transaction] + 8"),
    ),
    _capture(
        "write transactions again that are already durable",
        (f"{_WRITER}._missing", "changes['lsn'][0].as_py() <= self._log.watermark", "False"),
        # The server skips them as well, unless it is asked for everything.
        (
            "capture.preconditions:Claimer._start",
            "start_stream(_1, _2, _3, _4, _5)",
            "start_stream(_1, _2, _3, Lsn(0), _5)",
        ),
    ),
    _capture(
        "write parts again that are already durable", (f"{_WRITER}._missing", "self._partial is not None", "False")
    ),
    _capture("skip one ordinal too many after the durable parts", (f"{_LOG}.partial", "row[_1] + 1", "row[_1] + 2")),
    Mutation(
        "cut the resumed stream at the acknowledged LSN",
        Stage.CAPTURE,
        (Edit(f"{_WRITER}._missing", "self._log.watermark", "self._log.acknowledged", times=2),),
    ),
    _capture("record the end LSN as watermark", (f"{_LOG}.append", "end.commit_lsn", "end.end_lsn")),
    _capture("write transactions twice", (f"{_LOG}._append_transactions", "transactions.filter(_1)", "transactions")),
    _capture("write no transactions", (f"{_LOG}.append", "self._append_transactions(_1, _2)", "None")),
    _capture(
        "keep what ROLLBACK TO SAVEPOINT undid",
        ("replication.spool:Spool._abort", "transaction.cut(_1)", "None"),
    ),
    _capture(
        "acknowledge the end of an idle stretch without recording it",
        (f"{_LOG}.record_idle", "max(acknowledged, self.acknowledged)", "self.acknowledged"),
        (
            f"{_CAPTURE}._idle",
            "self._writer.record_idle(_1, _2)",
            "(self._writer.record_idle(_1, _2), self._stream.acknowledge(_1))",
        ),
    ),
    _capture(
        "give a change another table's name",
        (_DECODER, "[name.table for name in names]", "[names[0].table for _ in names]"),
    ),
    _capture(
        "replace a log entry that another process wrote",
        ("store.files:_link", "os.link(_1, _2)", "os.replace(_1, _2)"),
    ),
    _capture(
        "stop capture while a table is parked",
        (
            f"{_CAPTURE}.done_lsn",
            "self._writer.done_lsn",
            "Lsn(1) if any(self._partitions.lake.all_parked.glob('*/*.json')) else self._writer.done_lsn",
        ),
    ),
    _capture(
        "capture past a silent change of partitions without parking the table",
        ("capture.partition_watch:PartitionWatch._park", "", "pass"),
    ),
    _bootstrap(
        "commit a table without verifying the snapshot session",
        ("source.snapshot_session:SnapshotHolder.verify", "", "pass"),
    ),
    _bootstrap(
        "verify only that the server answers",
        ("source.snapshot_session:SnapshotHolder.verify", "", "connect(self._source).close()"),
    ),
    _apply_by_spark(
        "replace Spark's log entry instead of linking it",
        "accounts",
        (
            "spark.log_store:_source",
            "text.replace('VACUUMED', _VACUUMED)",
            f"text.replace('VACUUMED', _VACUUMED).replace('Files.createLink(entry, unfinished);', '{_MOVE}')",
        ),
    ),
    _apply("fold a parked table past its LSN", "parts", ("apply.apply:_end", "", "return limit")),
    _apply(
        "report a table as known up to the commit that it cannot follow",
        "retyped",
        (
            "apply.apply:_refused",
            "Parked(tail.table.name, Cause.APPLY, tail.upto, _1, reason, remedy, renewable=renewable)",
            "Parked(tail.table.name, Cause.APPLY, _1, _1, reason, remedy, renewable=renewable)",
        ),
    ),
    *_by_both("stop folding a table without parking it", "retyped", ("apply.apply:_record", "park(_1, _2)", "None")),
    *_by_both(
        "order changes by xid",
        "accounts",
        (f"{_STAGES}:NET", "order by lsn, ordinal", "order by xid, ordinal"),
        (f"{_STAGES}:NET", "(partition by __key order by lsn)", "(partition by __key order by xid)"),
    ),
    *_by_both(
        "order changes by their ordinal alone",
        "accounts",
        (f"{_STAGES}:NET", "order by lsn, ordinal", "order by ordinal, lsn"),
    ),
    *_by_both(
        "make a version of every change",
        "accounts",
        (f"{_STAGES}:NET", "where following_lsn is null or following_lsn <> lsn", ""),
    ),
    *_by_both("skip TRUNCATE", "orders", ("apply.tails:FOLDED_OPS", "'truncate'", "'none'")),
    *_by_both("skip TRUNCATE of a table without a key", "bags", ("apply.tails:FOLDED_OPS", "'truncate'", "'none'")),
    *_by_both(
        "take no unchanged TOAST value from an earlier change",
        "notes",
        (f"{_STAGES}:LAST_SENT", "last_value(__one ignore nulls) over until_here as __one", "__one"),
    ),
    *_by_both(
        "take unchanged TOAST values from the key instead of the row",
        "notes",
        (f"{_STAGES}:FILLED", "partition by __row", "partition by __key"),
    ),
    *_by_both(
        "leave the old key open after a key change",
        "accounts notes",
        (f"{_STAGES}:ROLES", "['died', 'born']", "['born']"),
    ),
    *_by_both("end no version at DELETE", "accounts", (f"{_STAGES}:EFFECTS", "role = 'died' as died", "false as died")),
    _apply(
        "commit rows without the position",
        "accounts",
        (f"{_MARK}:mark", "[*moved({HISTORY_APP: upto}), *reshaping, *actions]", "[*reshaping, *actions]"),
    ),
    _apply(
        "commit a position that is one too low",
        "accounts orders",
        (f"{_MARK}:mark", "{HISTORY_APP: upto}", "{HISTORY_APP: upto - 1}"),
    ),
    _apply("write no deletion vectors", "accounts", (f"{_MARK}:mark", "[*_1, *marked(_2, _3)]", "[*_1]")),
    _apply(
        "forget the rows that a deletion vector already marks",
        "accounts",
        ("lake.history_files:marked", "rows | files.gone(name)", "rows"),
    ),
    _apply(
        "match rows that a deletion vector marks",
        "accounts",
        (f"{_MARK}:_not_deleted", "_1 not in gone[_2]", "True"),
    ),
    _apply_by_spark(
        "begin the tail at its position",
        "accounts orders",
        (
            "apply.tail_fold:_changes",
            "F.struct('lsn') > _lsn(tail.table.position)",
            "F.struct('lsn') >= _lsn(tail.table.position)",
        ),
    ),
    *_by_both(
        "keep closed versions in the open partition",
        "accounts",
        (f"{_STAGES}:ROWS", "coalesce(strftime(_to_time, '%Y-%m'), 'open')", "'open'"),
    ),
    *_by_both(
        "end a version with the batch instead of the next change",
        "accounts",
        (f"{_STAGES}:ROWS", "then lsn else until_lsn end", "then lsn end"),
    ),
    *_by_both(
        "end copies of a row in the order of their birth",
        "bags",
        (f"{_STAGES}:NUMBERED", ") + case when died then 1 else 0 end as depth", ") as depth"),
    ),
    *_by_both(
        "take equal rows for one row",
        "bags",
        (f"{_STAGES}:NUMBERED", "when depth >= 1 then depth", "when depth >= 1 then 1"),
    ),
    *_by_both("record every birth as an update", "accounts", (f"{_STAGES}:ROWS", "begin_op as _op", "'update' as _op")),
    *_by_both(
        "record the first transaction of a version as its last",
        "accounts",
        (f"{_STAGES}:ROWS", "then xid else until_xid end", "or until_lsn is not null then xid end"),
    ),
    _apply(
        "without Spark: begin the tail at its position",
        "accounts",
        ("apply.parts:_CHANGES", "lsn > {after}", "lsn >= {after}"),
    ),
    _apply(
        "without Spark: read unchanged TOAST values as NULL",
        "notes",
        ("fold.in_duckdb:Fold._filled", "", "return rows"),
    ),
    _reshaped(
        "shift no LSN inside of the messages of another source",
        ("replication.stream:_shift", "_add_to(data, of_tag + place, lsn_offset)", "None"),
    ),
    _reshaped(
        "ask another source for LSNs of the lake",
        ("source.connection:lsn_at_source", "Lsn(max(0, lsn - lsn_offset(conn)))", "Lsn(lsn)"),
    ),
    _reshaped(
        "take LSNs of another source for those of the lake",
        ("source.connection:lsn_in_lake", "Lsn(lsn + lsn_offset(conn))", "Lsn(lsn)"),
    ),
    _reshaped(
        "take a schema change for one that the next transaction makes",
        (
            f"{_DDL}._record",
            "self.relations.record(published, commit_lsn, source=source, command=message.tag)",
            "self.relations.record(published, commit_lsn + 4096, source=source, command=message.tag)",
        ),
    ),
    _reshaped(
        "show NULL in older rows of an added column",
        (
            f"{_DDL}._tell_missing_values",
            "self.log.tell_missing_value(_1, _2, existing)",
            "self.log.tell_missing_value(_1, _2, replace(existing, value=None))",
        ),
    ),
    _reshaped(
        "follow a rewritten table as if its rows were the same",
        (f"{_DDL}._follow", "self._park_rewritten(shape, message, commit)", "None"),
    ),
    _erased("erase a held row", ("erasure.holding:require_not_held", "", "return")),
    _erased("let held versions expire", ("erasure.retention:_Run._is_held", "", "return False")),
    _erased(
        "erase from one key of a row only",
        ("audit.changes:linked_changes", "linked <= known or len(known) > most_keys", "True"),
    ),
    _erased(
        "erase versions that PostgreSQL has",
        ("erasure.matching:InHistory.erased", "", "return self.mask(rows)"),
    ),
    _erased(
        "leave exact texts of erased columns",
        ("erasure.matching:_marked", "name not in erasure.stored", "True"),
    ),
    _erased(
        "leave values in contexts",
        ("erasure.forget:_Run.erase", "erase(self.lake.transactions, _1)", "None"),
    ),
    _erased("leave values in messages", ("erasure.matching:InChanges._message", "", "return row['content']")),
    _erased("leave files that no version names", ("delta.erasing:erase", "delete_unnamed(table, listed)", "None")),
    _erased("leave bounds in the log", ("erasure.forget:_Run.erase", "forget_log(self.table.path)", "None")),
    _erased("leave the key of a block", ("erasure.in_ledger:_block", "", "return row")),
    _erased(
        "leave the key of a block where it was prepared",
        ("erasure.in_ledger:destroy_secrets", "lake.next_block.unlink(missing_ok=True)", "None"),
    ),
    _erased(
        "lose the secrets of other rows",
        ("erasure.in_ledger:_entry", "secret_of(block.key, identity)", "None"),
    ),
    _erased(
        "leave the secrets of what is erased",
        ("erasure.in_ledger:_entry", "row['number'] in numbers", "False"),
    ),
    _erased("take any row for the one that was sealed", ("ledger.verification:_Rows._joined", "", "yield from ()")),
    _erased("take any bounds for right", ("delta.bounds_check:_Values.are_within", "", "return True")),
    _erased("take changes from before an erasure for right", ("lake.erasures:require_erased_log", "", "return")),
)
