"""Table names: find the table that a name in a statement means, and name its views. Pure.

`schema.table`, or `table` alone: the one in `public`, else in the only schema that has it. Names match as in Spark,
without regard to case, and an exact match wins. The schema `auditlake` always means the lake's own tables, even if the
source has a schema of that name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import path_segment
from auditlake.relation import SYSTEM_SCHEMA, TableName

SYSTEM_TABLES = tuple(TableName(SYSTEM_SCHEMA, name) for name in ("changes", "transactions", "relations", "gaps"))
_DEFAULT_SCHEMA = "public"
_QUALIFIED = 2
_UNQUOTED = frozenset('"`\\')
"""Characters that a statement has twice or escaped, or not at all."""


def split_name(name: str) -> list[str]:
    """Split `schema.table` at its dots; a part in double quotes keeps its dots."""
    parts, rest = [], name
    while True:
        if rest.startswith('"') and (end := _closing_quote(rest)):
            parts.append(rest[1:end].replace('""', '"'))
            rest = rest[end + 1 :]
        else:
            head, dot, tail = rest.partition(".")
            parts.append(head)
            rest = dot + tail
        if not rest.startswith("."):
            return [*parts[:-1], parts[-1] + rest]
        rest = rest[1:]


def _closing_quote(text: str) -> int:
    at = text.find('"', 1)
    while at > 0 and text[at : at + 2] == '""':
        at = text.find('"', at + 2)
    return max(at, 0)


def find_table(parts: Sequence[str], tables: Iterable[TableName], in_doubt: Sequence[TableName] = ()) -> TableName:
    """Find the table that a name of one or two parts means; the names of tables `in_doubt` may have changed.

    Raises BadUsage if no table matches, or several do; NotAnswerable if one of those in doubt may.
    """
    every = list(tables)
    known = [table for table in every if table.schema != SYSTEM_SCHEMA]
    if len(parts) == _QUALIFIED:
        found = _exact_first(TableName(*parts), [*known, *SYSTEM_TABLES])
    elif len(parts) == 1:
        found = _unqualified(parts[0], known)
    else:
        found = []
    if not found and len(parts) == _QUALIFIED and TableName(*parts) in every:
        raise BadUsage(
            f"{'.'.join(parts)} is in the schema {SYSTEM_SCHEMA}, whose tables are the lake's own in questions",
            "Ask for a moment at which the table had another name, by that, or move it into another schema.",
        )
    if not found and in_doubt:
        raise NotAnswerable(
            f"there is no table {'.'.join(parts)} in this lake, and the definition of "
            f"{', '.join(map(str, in_doubt))}, perhaps the name, was changed by a commit that is not captured yet",
            "Ask again in a few seconds; auditlake status shows how far capture is.",
        )
    if not found:
        raise BadUsage(f"there is no table {'.'.join(parts)} in this lake", _close(parts, known))
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise BadUsage(f"{'.'.join(parts)} could be {names}", "Write the schema, and the name as PostgreSQL spells it.")
    return found[0]


def mentioned(*texts: str) -> Callable[[HistoryTable], bool]:
    """Return whether a question may be about a table: one of its names is somewhere in its text."""
    text = "\n".join(texts).casefold()

    def is_mentioned(table: HistoryTable) -> bool:
        names = {name.table.casefold() for name in table.known_as}
        return any(name in text or not _UNQUOTED.isdisjoint(name) for name in names)

    return is_mentioned


def check_copied(parts: Sequence[str], copying: Iterable[TableName], tables: Iterable[TableName]) -> None:
    """Check that a name does not mean a table that has not been completely copied; raises NotAnswerable."""
    asked = [part.casefold() for part in parts]
    names = {(table.schema.casefold(), table.table.casefold()) for table in tables}
    for table in copying:
        folded = [table.schema.casefold(), table.table.casefold()]
        if asked == folded or (asked == folded[-1:] and not any(name == folded[-1] for _, name in names)):
            raise NotAnswerable(
                f"{table} has not been completely copied yet",
                "Wait for auditlake bootstrap to end, or run it again: it copies the tables that have no history.",
            )


def view_names(tables: Iterable[TableName]) -> dict[str, TableName]:
    """Name the views of these tables: `schema__table`, and `table` too if only one schema has it.

    Spark's view names are case-insensitive. Names that differ only in case are escaped as in the lake's folders, with
    `~` and hexadecimal digits.
    """
    known = list(tables)
    long = {table: f"{table.schema}__{table.table}" for table in known}
    taken = Counter(name.casefold() for name in long.values())
    names = {
        name if taken[name.casefold()] == 1 else f"{path_segment(table.schema)}__{path_segment(table.table)}": table
        for table, name in long.items()
    }
    bare = Counter(table.table.casefold() for table in known)
    in_use = {name.casefold() for name in names}
    names |= {t.table: t for t in known if bare[t.table.casefold()] == 1 and t.table.casefold() not in in_use}
    return names


def _unqualified(name: str, known: Sequence[TableName]) -> list[TableName]:
    if found := _exact_first(TableName(_DEFAULT_SCHEMA, name), known):
        return found
    candidates = [table for table in known if table.table.casefold() == name.casefold()]
    return [table for table in candidates if table.table == name] or candidates


def _exact_first(name: TableName, known: Sequence[TableName]) -> list[TableName]:
    if name in known:
        return [name]
    return [table for table in known if _folded(table) == _folded(name)]


def _folded(name: TableName) -> tuple[str, str]:
    return name.schema.casefold(), name.table.casefold()


def _close(parts: Sequence[str], known: Sequence[TableName]) -> str:
    spellings: dict[str, list[str]] = {}
    for table in (*known, *SYSTEM_TABLES):
        for spelling in (f"{table.schema}.{table.table}", table.table):
            spellings.setdefault(spelling.casefold(), []).append(str(table))
    for asked in (".".join(parts), parts[-1]):
        if close := get_close_matches(asked.casefold(), spellings, n=3):
            names = dict.fromkeys(name for spelling in close for name in spellings[spelling])
            return f"Did you mean {' or '.join(names)}?"
    return "auditlake status lists the tables; in SQL, SHOW TABLES does."
