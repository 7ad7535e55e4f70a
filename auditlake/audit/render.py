"""The answers for people: text with colours on a terminal, plain lines elsewhere.

NULL is dim; the text NULL and the empty text are quoted, so that the three are told apart. Values are made safe to look
at. Each function takes what the question found and prints it to stdout as it comes; nothing is held back.
"""

import sys
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from auditlake.audit.changes import Values
from auditlake.audit.compared import Compared
from auditlake.audit.deleted import Deleted
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Entry, Stat
from auditlake.audit.life import Blame, Event
from auditlake.audit.show import Message, Shown
from auditlake.audit.transactions import Transaction
from auditlake.lsn import Lsn
from auditlake.pgoutput.context import Context
from auditlake.query.when import format_us
from auditlake.relation import Column
from auditlake.visible import visible

_SIGNS = {ADDED: ("+", "green"), REMOVED: ("-", "red"), MODIFIED: ("~", "yellow")}
_OLD, _NEW, _DIM = "red", "green", "dim"
BEFORE_CAPTURE = "before capture"


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True, markup=False, emoji=False)
    if not console.is_terminal:  # a file has no width: nothing may wrap there
        console.width = sys.maxsize
    return console


def value_text(value: str | None, style: str = "") -> Text:
    """Write one value."""
    if value is None:
        return Text("NULL", style="dim italic")
    return Text(f"'{value}'" if value in {"", "NULL"} else visible(value), style=style)


def _pairs(values: Values, style: str = "") -> Text:
    return Text(" ").join(
        Text.assemble(f"{visible(name)}=", value_text(value, style)) for name, value in values.items()
    )


def who(context: Context) -> str:
    """The actor, with the role that the server observed."""
    observed = f" ({context.db_user})" if context.db_user else ""
    return visible((context.actor or "unknown") + observed)


def _counts(transaction: Transaction) -> str:
    counts = (("+", transaction.inserts), ("~", transaction.updates), ("-", transaction.deletes))
    found = [f"{sign}{count:,}" for sign, count in counts if count]
    return " ".join([*found, *["truncate"] * bool(transaction.truncates)]) or "0"


def show_log(transactions: Iterable[Transaction]) -> None:
    """Print transactions as a table."""
    table = _table("time", "lsn", "xid", "who", "changes", "tables", "why")
    for each in transactions:
        cells = (format_us(each.time_us), str(each.lsn), str(each.xid), who(each.context), _counts(each))
        table.add_row(*cells, visible(", ".join(each.tables)), visible(each.context.reason or ""))
    _console().print(table)


def show_log_line(each: Transaction) -> None:
    """Print one transaction as a line, for a log that goes on."""
    cells = (format_us(each.time_us), str(each.lsn), str(each.xid), who(each.context), _counts(each))
    rest = (visible(", ".join(each.tables)), visible(each.context.reason or ""))
    _console().print("  ".join((*cells, *rest)).rstrip())


def show_transaction(transaction: Transaction, contents: Iterable[Shown | Message]) -> None:
    """Print one transaction whole."""
    console = _console()
    console.print(
        Text(f"transaction {transaction.lsn}  xid {transaction.xid}  {format_us(transaction.time_us)}", "bold")
    )
    console.print(f"who      {who(transaction.context)}")
    if transaction.context.reason:
        console.print(f"why      {visible(transaction.context.reason)}")
    for name, said in (("app", transaction.context.app), ("db", transaction.context.db)):
        if said is not None:
            console.print(f"{name:<8} {visible(str(said) if not isinstance(said, dict) else _said(said))}")
    console.print(f"changes  {_counts(transaction)} in {visible(', '.join(transaction.tables)) or 'no table'}\n")
    for each in contents:
        _show_content(console, each)


def _said(said: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in said.items())


def _show_content(console: Console, each: Shown | Message) -> None:
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


def _show_changed(console: Console, before: Values | None, after: Values | None, indent: int) -> None:
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


def show_event(event: Event, transaction: Transaction | None, key: tuple[Column, ...], *, full: bool) -> None:
    """Print one event of a row's life."""
    console = _console()
    if event.mark.op == "snapshot":
        console.print(Text(f"{BEFORE_CAPTURE} (≤ {Lsn(event.mark.lsn)})", "bold"))
    else:
        by = "unknown" if transaction is None else who(transaction.context)
        reason = transaction.context.reason if transaction else None
        why = f": {visible(reason)}" if reason else ""
        head = f"{format_us(event.mark.time_us)}  {Lsn(event.mark.lsn)}  xid {event.mark.xid}  {by}{why}"
        console.print(Text(head, "bold"))
    names = [column.name for column in key]
    line = Text(f"  {event.mark.op} ").append_text(_pairs(dict(zip(names, event.key_before or event.key, strict=True))))
    if event.key_before is not None:
        line.append(" → ").append_text(_pairs(dict(zip(names, event.key, strict=True))))
    console.print(line)
    before, after = (version.values if version else None for version in (event.before, event.after))
    _show_changed(console, before, after, indent=4)
    if full and before is not None and after is not None:
        same = {name: after[name] for name in after if name not in event.changed()}
        console.print(Text("    ").append_text(_pairs(same, _DIM)))


def show_gap(line: str) -> None:
    """Print that something is missing."""
    _console().print(Text(line, "bold red"))


def show_blame(found: Iterable[tuple[Blame, Transaction | None]], horizon: Lsn) -> None:
    """Print who set each column."""
    table = _table("column", "value", "who", "time", "lsn", "why")
    for blame, transaction in found:
        cells = (Text(visible(blame.column)), value_text(blame.value))
        if blame.mark is None:
            table.add_row(*cells, f"{BEFORE_CAPTURE} (≤ {horizon})")
            continue
        context = transaction.context if transaction else Context()
        when = (format_us(blame.mark.time_us), str(Lsn(blame.mark.lsn)))
        table.add_row(*cells, who(context), *when, visible(context.reason or ""))
    _console().print(table)


def show_deleted(rows: Iterable[tuple[Deleted, Transaction | None]], columns: tuple[Column, ...]) -> None:
    """Print rows that are gone, each with its last state."""
    table = _table("deleted", "lsn", "who", "by", *(visible(column.name) for column in columns))
    for row, transaction in rows:
        context = transaction.context if transaction else Context()
        cells = (format_us(row.mark.time_us), str(Lsn(row.mark.lsn)), who(context), row.mark.op)
        table.add_row(*cells, *(value_text(row.last.values.get(column.name)) for column in columns))
    _console().print(table)


def show_diff(table: Compared) -> None:
    """Print what differs in one table, its schema first."""
    console = _console()
    heading = Text(visible(str(table.name)), "bold")
    for line in (visible(each) for each in table.schema_changes()):
        console.print(heading + Text(f": {line}"))
    for kind in (REMOVED, MODIFIED, ADDED):
        for entry in table.entries(kind):
            if heading:
                console.print(heading)
                heading = Text()
            _show_entry(console, entry)


def _show_entry(console: Console, entry: Entry) -> None:
    sign, style = _SIGNS[entry.kind]
    line = Text(f"  {sign} ", style)
    if entry.kind != MODIFIED:
        console.print(line.append_text(_pairs(entry.after or entry.before or {})))
        return
    line.append_text(_pairs(entry.key))
    for name in entry.changed:
        line.append(f"  {visible(name)}: ", "")
        line = _arrow(line, (entry.before or {})[name], (entry.after or {})[name])
    console.print(line)


def show_stat(stats: Iterable[tuple[str, Stat]]) -> None:
    """Print how much differs, one table a line."""
    headers = ("table", "rows before", "rows after", "added", "removed", "modified", "unmodified", "cells modified")
    table = _table(*headers)
    for name, stat in stats:
        numbers = (stat.rows_before, stat.rows_after, stat.added, stat.removed, stat.modified, stat.unmodified)
        table.add_row(visible(name), *(f"{number:,}" for number in (*numbers, stat.cells_modified)))
    _console().print(table)


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
