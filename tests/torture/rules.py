"""The mutations: each breaks one rule, in as few characters of the source as will do."""

from dataclasses import dataclass

_CAPTURE, _WRITER, _LOG = "capture/capture.py", "capture/writer.py", "lake/changes.py"
_CLAIMING = "capture/claiming.py"
_COLUMNAR, _SPOOL = "pgoutput/columnar.py", "postgres/spool.py"
_FOLD, _EFFECTS, _COPIES = "apply/fold.py", "apply/effects.py", "apply/copies.py"
_MARK, _TAILS, _UNCHANGED = "apply/mark.py", "apply/tails.py", "apply/unchanged.py"


@dataclass(frozen=True)
class Mutation:
    """What to replace in which file; `tables` are those whose history shows it, all where empty."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    of_apply: bool = False
    tables: tuple[str, ...] = ()


def _capture(name: str, *changes: tuple[str, str, str]) -> Mutation:
    return Mutation(name, changes)


def _apply(name: str, tables: str, *changes: tuple[str, str, str]) -> Mutation:
    return Mutation(name, changes, of_apply=True, tables=tuple(tables.split()))


MUTATIONS = (
    _capture(
        "acknowledged before the commit",
        (
            _CAPTURE,
            "            self._writer.write(whole)\n",
            "            self._stream.acknowledge(wal_end(self._control).lsn)\n            self._writer.write(whole)\n",
        ),
    ),
    _capture(
        "end LSN for commit LSN",
        (_COLUMNAR, '"lsn": spans.lsn[rows.transaction]', '"lsn": spans.lsn[rows.transaction] + 8'),
    ),
    _capture(
        "what was sent again is not left out",
        (_WRITER, 'if changes["lsn"][0].as_py() <= self._log.watermark:', "if False:"),
        # The server leaves it out as well, where it is told the right place to start from.
        (_CLAIMING, "publication, start, streaming)", "publication, Lsn(0), streaming)"),
    ),
    _capture("parts that are there are not left out", (_WRITER, "if self._partial is not None:", "if False:")),
    _capture(
        "one more place of a part is left out",
        (_LOG, 'Partial(Lsn(row["lsn"]), row["ordinal"] + 1)', 'Partial(Lsn(row["lsn"]), row["ordinal"] + 2)'),
    ),
    _capture(
        "the resumed stream is cut at the acknowledged LSN",
        (_WRITER, "<= self._log.watermark:", "<= self._log.acknowledged:"),
        (_WRITER, "int(self._log.watermark)", "int(self._log.acknowledged)"),
    ),
    _capture(
        "the watermark is the end LSN",
        (_LOG, "positions = {CHANGES_APP: end.commit_lsn,", "positions = {CHANGES_APP: end.end_lsn,"),
    ),
    _capture(
        "transactions are written twice",
        (_LOG, 'fresh = transactions.filter(pc.greater(transactions["lsn"], written))', "fresh = transactions"),
    ),
    _capture(
        "transactions are not written",
        (_LOG, "        self._append_transactions(transactions, end)\n", ""),
    ),
    _capture(
        "what a savepoint undid is kept",
        (_SPOOL, "            transaction.cut((abort.subxid - abort.xid) % _XIDS)", "            pass"),
    ),
    _capture(
        "the idle end is acknowledged but not recorded",
        (_LOG, "ACKNOWLEDGED_APP: max(acknowledged, self.acknowledged),", "ACKNOWLEDGED_APP: self.acknowledged,"),
        (
            _CAPTURE,
            "            self._writer.note_idle(reached, mark.time_us)\n",
            "            self._writer.note_idle(reached, mark.time_us); self._stream.acknowledge(reached)\n",
        ),
    ),
    _capture(
        "a table's name is another's",
        (_COLUMNAR, "[name.table for name in names]", "[names[0].table for name in names]"),
    ),
    _apply(
        "changes are ordered by xid",
        "accounts",
        (
            _FOLD,
            'by_key = Window.partitionBy(*key).orderBy("lsn", "ordinal")',
            'by_key = Window.partitionBy(*key).orderBy("xid", "ordinal")',
        ),
        (
            _FOLD,
            'by_transaction = Window.partitionBy(*key).orderBy("lsn")',
            'by_transaction = Window.partitionBy(*key).orderBy("xid")',
        ),
    ),
    _apply(
        "changes are ordered by their place alone",
        "accounts",
        (
            _FOLD,
            'by_key = Window.partitionBy(*key).orderBy("lsn", "ordinal")',
            'by_key = Window.partitionBy(*key).orderBy("ordinal", "lsn")',
        ),
    ),
    _apply(
        "every change makes a version",
        "accounts",
        (_FOLD, 'F.col("following_lsn").isNull() | (F.col("following_lsn") != F.col("lsn"))', "F.lit(True)"),
    ),
    _apply("TRUNCATE is skipped", "orders", (_TAILS, '"delete", "truncate")', '"delete")')),
    _apply("TRUNCATE is skipped without a key", "bags", (_TAILS, '"delete", "truncate")', '"delete")')),
    _apply(
        "unchanged values are NULL",
        "notes",
        (_FOLD, "    if wanted:\n", "    if wanted and not columns:\n"),
        (_FOLD, "    if not (shape.has_truncate or wanted):", "    if not shape.has_truncate:"),
        (_FOLD, 'known["value"]).otherwise(missing)', 'known["value"])'),
    ),
    _apply(
        "unchanged values come from the key, not the row",
        "notes",
        (_UNCHANGED, "    if shape.has_key_change:\n", "    if shape.has_key_change and not columns:\n"),
    ),
    _apply(
        "a key change leaves the old key open",
        "accounts notes",
        (_EFFECTS, "F.array(dies, born))\n        .otherwise", "F.array(born))\n        .otherwise"),
    ),
    _apply(
        "a delete does not end a version",
        "accounts",
        (_EFFECTS, 'op == "insert", op == "delete", op)', 'op == "insert", F.lit(False), op)'),
        (
            _EFFECTS,
            '.when(op == "delete", F.array(dies))',
            '.when(op == "delete", F.array(_effect(key_before, no, no, op)))',
        ),
    ),
    _apply(
        "the position is not in the commit",
        "accounts",
        (_MARK, "[*moved({HISTORY_APP: upto}), *actions]", "actions"),
    ),
    _apply(
        "the position is one too low",
        "accounts orders",
        (_MARK, "moved({HISTORY_APP: upto})", "moved({HISTORY_APP: upto - 1})"),
    ),
    _apply("what ended is not marked", "accounts", (_MARK, ", *_marked(files, places)]", "]")),
    _apply("what was marked before is forgotten", "accounts", (_MARK, "rows | files.gone(name)", "rows")),
    _apply("what is gone is met again", "accounts", (_MARK, "[row not in gone[name] for", "[True for")),
    _apply(
        "the tail begins at its position",
        "accounts orders",
        ("apply/apply.py", '"lsn") > _lsn(tail.table.position)', '"lsn") >= _lsn(tail.table.position)'),
    ),
    _apply(
        "closed versions stay in the open part",
        "accounts",
        (_FOLD, 'F.date_format(end_time, "yyyy-MM"), F.lit(OPEN_PART)', "F.lit(OPEN_PART)"),
    ),
    _apply(
        "a version ends with the batch, not with the next change",
        "accounts",
        (_FOLD, '"_to_lsn": of_end("lsn", "lsn"),', '"_to_lsn": F.when(ends_before, F.col("lsn")),'),
    ),
    _apply(
        "copies end in the order in which they came",
        "bags",
        (
            _COPIES,
            'copy = depth.over(until_here.rowsBetween(Window.unboundedPreceding, 0)) + F.col("died").cast("int")',
            "copy = depth.over(until_here.rowsBetween(Window.unboundedPreceding, 0))",
        ),
    ),
    _apply(
        "equal rows are one",
        "bags",
        (_COPIES, "F.when(copy >= 1, copy).otherwise(not_there)", "F.when(copy >= 1, F.lit(1)).otherwise(not_there)"),
    ),
    _apply(
        "what began a version is always an update",
        "accounts",
        (_FOLD, '"_op": F.col("begin_op"),', '"_op": F.lit("update"),'),
    ),
    _apply(
        "the end's transaction is the beginning's",
        "accounts",
        (_FOLD, '"_end_xid": of_end("xid", "xid"),', '"_end_xid": F.when(end_time.isNotNull(), F.col("xid")),'),
    ),
)
