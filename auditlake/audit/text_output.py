"""Text output of the audit commands: with colours and ages on a terminal, plain lines elsewhere.

Times are in the zone of `now`. NULL is dim; the text NULL and the empty text are quoted, to distinguish the three.
Control characters in values are escaped (`escape.visible`). Lines are printed as they are found; a table is printed
when it is complete, because its column widths depend on every row.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from auditlake.audit.answers import BlamedColumn, Commit, DeletedRow, RowDifference, RowEvent, Texts, differences
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Compared, Stat
from auditlake.audit.transaction_contents import Message, ShownChange
from auditlake.audit.transactions import Transaction
from auditlake.lake.gaps import Gap
from auditlake.lake.history import RESYNC
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import Context
from auditlake.relation import Column
from auditlake.temporal.when import format_age, format_us
from auditlake.terminal import console_for, plain_table, show
from auditlake.values.escapes import visible

_SIGNS = {ADDED: ("+", "green"), REMOVED: ("-", "red"), MODIFIED: ("~", "yellow")}
_OLD, _NEW, _DIM = "red", "green", "dim"
BEFORE_CAPTURE = "before capture"


def _time(time_us: int, now: datetime, to: Console) -> str:
    """Format a time in the zone of `now`, on a terminal with its age."""
    shown = format_us(time_us, now.tzinfo or UTC)
    return f"{shown} ({format_age(now.timestamp() - time_us / 1_000_000)})" if to.is_terminal else shown


def value_text(value: str | None, style: str = "") -> Text:
    """Format one value."""
    if value is None:
        return Text("NULL", style="dim italic")
    return Text(f"'{value}'" if value in {"", "NULL"} else visible(value), style=style)


def _lines() -> Console:
    """Return a console for text that the terminal wraps."""
    to = console_for()
    to.soft_wrap = True
    return to


def _pairs(values: Texts, style: str = "") -> Text:
    return Text(" ").join(
        Text.assemble(f"{visible(name)}=", value_text(value, style)) for name, value in values.items()
    )


def who(commit: Commit | Context) -> str:
    """Format the actor, with the role that the server observed."""
    observed = f" ({commit.db_user})" if commit.db_user else ""
    return visible((commit.actor or "unknown") + observed)


def _counts(transaction: Transaction) -> str:
    counts = (("+", transaction.inserts), ("~", transaction.updates), ("-", transaction.deletes))
    shown = [f"{sign}{count:,}" for sign, count in counts if count]
    named = (("truncate", transaction.truncates), ("schema", transaction.schema_changes))
    return " ".join([*shown, *(name for name, some in named if some)]) or "0"


def _what(transaction: Transaction) -> str:
    """Format the changed tables, and the changes of their schema."""
    return visible("; ".join([*filter(None, [", ".join(transaction.tables)]), *transaction.schema_changes]))


def _cells(each: Transaction, time: str) -> tuple[str, ...]:
    numbers = (str(each.lsn), str(each.xid or ""))
    return (time, *numbers, who(each.context), _counts(each), _what(each), visible(each.context.reason or ""))


def show_log(transactions: Iterable[Transaction], now: datetime) -> None:
    """Print transactions as a table."""
    to = console_for()
    table = plain_table("time", "lsn", "xid", "who", "changes", "tables", "why")
    for each in transactions:
        table.add_row(*_cells(each, _time(each.time_us, now, to)))
    show(table, to)


def show_log_line(each: Transaction, now: datetime) -> None:
    """Print one transaction as a line, for `--follow`."""
    _lines().print("  ".join(_cells(each, format_us(each.time_us, now.tzinfo or UTC))).rstrip())


def show_transaction(transaction: Transaction, contents: Iterable[ShownChange | Message], now: datetime) -> None:
    """Print one transaction with its changes and messages."""
    to = _lines()
    time = _time(transaction.time_us, now, to)
    to.print(Text(f"transaction {transaction.lsn}  xid {transaction.xid}  {time}", "bold"))
    to.print(f"who      {who(transaction.context)}")
    if transaction.context.reason:
        to.print(f"why      {visible(transaction.context.reason)}")
    for name, member in (("app", transaction.context.app), ("db", transaction.context.db)):
        if member is not None:
            to.print(f"{name:<8} {visible(str(member) if not isinstance(member, dict) else _entries(member))}")
    to.print(f"changes  {_counts(transaction)} in {visible(', '.join(transaction.tables)) or 'no table'}\n")
    for what in transaction.schema_changes:
        to.print(f"schema   {visible(what)}")
    for each in contents:
        _show_content(to, each)


def _entries(member: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in member.items())


def show_change(op: str, table: str, key: Texts, sides: tuple[Texts | None, Texts | None]) -> None:
    """Print one change of the feed: its key, and the row before and after it, as far as it was sent."""
    console = _lines()
    console.print(Text(f"    {op} {visible(table)} ").append_text(_pairs(key)))
    before, after = sides
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        line = Text(f"        {visible(name)}: ")
        if before is not None and after is not None and name in before and name in after:
            console.print(_arrow(line, before[name], after[name]))
        else:
            new = after is not None and name in after
            values = after if new else before
            console.print(line.append_text(value_text((values or {})[name], _NEW if new else _OLD)))


def _show_content(console: Console, each: ShownChange | Message) -> None:
    if isinstance(each, Message):
        content = each.content.decode(errors="backslashreplace")
        console.print(Text(visible(f"{each.ordinal:>4}  message {each.prefix}: {content}"), _DIM))
        return
    step, change = each.step, each.step.change
    line = Text(f"{change.ordinal:>4}  {change.op} {visible(str(each.table))} ")
    if change.op == "truncate":
        removed = "" if step.removed is None else f"({step.removed:,} rows)"
        console.print(line.append(removed))
        return
    key = step.key_after if step.key_before is None else step.key_before
    line.append_text(_pairs(dict(zip(each.key, key or (), strict=True))))
    console.print(line)
    _show_changed(console, step.before, step.after, indent=8)


def _show_changed(console: Console, before: Texts | None, after: Texts | None, indent: int) -> None:
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        line = Text(" " * indent + f"{visible(name)}: ")
        if before is None or after is None:
            gone, values = after is None, before if after is None else after
            console.print(line.append_text(value_text((values or {}).get(name), _OLD if gone else _NEW)))
        elif name not in before:
            console.print(line.append_text(value_text(after[name], _NEW)))
        elif before[name] != after.get(name):
            console.print(_arrow(line, before[name], after.get(name)))


def _arrow(line: Text, old: str | None, new: str | None) -> Text:
    return line.append_text(value_text(old, _OLD)).append(" → ").append_text(value_text(new, _NEW))


def show_event(event: RowEvent, now: datetime, *, full: bool) -> None:
    """Print one event of a row."""
    console = _lines()
    console.print(Text(_head(event, now, console), "bold"))
    line = Text(f"  {event.op} ").append_text(_pairs(event.key_texts_before or event.key_texts))
    if event.key_texts_before is not None:
        line.append(" → ").append_text(_pairs(event.key_texts))
    console.print(line)
    before, after = event.before_texts, event.after_texts
    _show_changed(console, before, after, indent=4)
    if full and before is not None and after is not None:
        same = {name: after[name] for name in after if name not in event.changed}
        console.print(Text("    ").append_text(_pairs(same, _DIM)))


def _head(event: RowEvent, now: datetime, to: Console) -> str:
    """Format when an event was, who did it and why."""
    if event.is_before_capture:
        return f"{BEFORE_CAPTURE} (≤ {event.at.lsn})"
    when = f"{_time(event.at.time_us or 0, now, to)}  {event.at.lsn}"
    if event.op == RESYNC:
        return f"{when}  found by a new snapshot"
    why = f": {visible(event.at.reason)}" if event.at.reason else ""
    return f"{when}  xid {event.at.xid}  {who(event.at)}{why}"


def show_gap(gap: Gap) -> None:
    """Print a gap."""
    _lines().print(Text(f"gap {gap.lsn_from} to {gap.lsn_to}: {visible(gap.reason)}", "bold red"))


def show_blame(columns: Iterable[BlamedColumn], first: Lsn, now: datetime) -> None:
    """Print who set each column; `first` is the LSN of the table's first snapshot."""
    to = console_for()
    table = plain_table("column", "value", "who", "time", "lsn", "why")
    for each in columns:
        cells, commit = (Text(visible(each.column)), value_text(each.text)), each.commit
        if each.gap is not None:
            table.add_row(*cells, f"unknown: set or kept in the gap {each.gap.lsn_from} to {each.gap.lsn_to}")
            continue
        if commit.lsn is None:
            expired = "unknown: the versions of then have expired"
            table.add_row(*cells, expired if each.has_expired else f"{BEFORE_CAPTURE} (≤ {first})")
            continue
        time = "" if commit.time_us is None else _time(commit.time_us, now, to)
        table.add_row(*cells, who(commit), time, str(commit.lsn), visible(commit.reason or ""))
    show(table, to)


def show_deleted(rows: Iterable[DeletedRow], columns: tuple[Column, ...], now: datetime) -> None:
    """Print deleted rows, each with its last state: in `columns`, and in those that it had besides."""
    to, rows = console_for(), list(rows)
    names = dict.fromkeys(column.name for column in columns)
    names |= dict.fromkeys(name for row in rows for name in row.texts)
    table = plain_table("deleted", "lsn", "who", "by", *map(visible, names))
    for row in rows:
        cells = (_time(row.commit.time_us or 0, now, to), str(row.commit.lsn), who(row.commit), row.op)
        table.add_row(*cells, *(value_text(row.texts[name]) if name in row.texts else "" for name in names))
    show(table, to)


def show_diff(table: Compared) -> None:
    """Print the differences of one table, its columns first."""
    console = _lines()
    heading = Text(visible(str(table.name)), "bold")
    for line in (visible(each) for each in table.schema_changes()):
        console.print(heading + Text(f": {line}"))
    for each in differences(table):
        if heading:
            console.print(heading)
            heading = Text()
        _show_difference(console, each)


def _show_difference(console: Console, found: RowDifference) -> None:
    sign, style = _SIGNS[found.kind]
    line = Text(f"  {sign} ", style)
    if found.kind != MODIFIED:
        console.print(line.append_text(_pairs(found.after_texts or found.before_texts or {})))
        return
    line.append_text(_pairs(found.key_texts))
    for name in found.changed:
        line.append(f"  {visible(name)}: ", "")
        line = _arrow(line, (found.before_texts or {})[name], (found.after_texts or {})[name])
    console.print(line)


def show_stat(stats: Iterable[tuple[str, Stat]]) -> None:
    """Print the size of the difference, one table a line."""
    to = console_for()
    headers = ("rows\nbefore", "rows\nafter", "added", "removed", "modified", "un-\nmodified", "cells\nmodified")
    table = plain_table("table", *headers, right=headers)
    for name, stat in stats:
        numbers = (stat.rows_before, stat.rows_after, stat.added, stat.removed, stat.modified, stat.unmodified)
        table.add_row(visible(name), *(f"{number:,}" for number in (*numbers, stat.cells_modified)))
    show(table, to)
