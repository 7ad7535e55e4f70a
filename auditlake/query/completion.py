"""Completion of a partial statement: tables, columns, keywords, FOR SYSTEM_TIME. Pure.

After `x.`: the tables of schema x, or the columns of the table that is named or aliased x in the statement. Elsewhere:
keywords, every table, and the columns of the tables that the statement names, at whatever place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from auditlake.lake.history import STORED_PERIOD
from auditlake.relation import TableName
from auditlake.sql_names import spark_identifier
from auditlake.temporal.table_lookup import SYSTEM_TABLES

KEYWORDS = (
    *("select", "from", "where", "group by", "order by", "having", "limit", "distinct", "as", "and", "or", "not"),
    *("join", "left join", "right join", "full outer join", "cross join", "on", "using", "with", "union all", "except"),
    *("intersect", "case", "when", "then", "else", "end", "is null", "is not null", "between", "in", "like", "exists"),
    *("count(", "sum(", "min(", "max(", "avg(", "coalesce(", "cast(", "over (", "partition by", "desc", "asc"),
    *("explain", "describe", "show tables"),
    *("for", "system_time as of '", "system_time from '", "system_time between '", "system_time contained in ('"),
    "system_time all",
)
META = ("\\as-of ", "\\d ", "\\format ", "\\x", "\\timing", "\\q", "\\?")
_FORMATS = ("table", "csv", "json")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_LONGEST = 300
"""Characters of two quoted names: from each character on, the pattern would read all that follow."""
_WORD = re.compile(r"(?:(?P<owner>\w+|`(?:[^`]|``)+`)\.)?(?P<word>\\?[\w-]*)$")

Tables = Mapping[TableName, Sequence[str]]
"""Column names by table."""


def complete(text: str, tables: Tables, rest: str = "") -> Iterator[tuple[str, int]]:
    """Yield completions of the end of `text`, and how many characters each replaces; `rest`, after it, names tables."""
    match = _WORD.search(text, max(0, len(text) - _LONGEST))
    word = match["word"] if match else ""
    owner = match["owner"].strip("`") if match and match["owner"] else None
    for candidate in dict.fromkeys(_candidates(text, rest, owner, tables)):
        if candidate.casefold().lstrip("`").startswith(word.casefold()) and candidate != word:
            yield candidate, len(word)


def _candidates(text: str, rest: str, owner: str | None, tables: Tables) -> Iterator[str]:
    if text.lstrip().startswith("\\"):
        yield from _of_meta(text, tables)
    elif owner is not None:
        yield from (_quoted(name.table) for name in _all(tables) if name.schema == owner)
        for name in _called(owner, f"{text} {rest}", tables):
            yield from map(_quoted, [*tables[name], *STORED_PERIOD])
    else:
        yield from (
            _quoted(column) for name in _named(f"{text} {rest}", tables) for column in [*tables[name], *STORED_PERIOD]
        )
        yield from _table_names(tables)
        yield from KEYWORDS


def _of_meta(text: str, tables: Tables) -> Iterator[str]:
    if " " not in text.strip() and not text.endswith(" "):
        yield from META
    elif text.startswith("\\d"):
        yield from _table_names(tables)
    elif text.startswith("\\format"):
        yield from _FORMATS


def _all(tables: Tables) -> list[TableName]:
    return [*tables, *SYSTEM_TABLES]


def _table_names(tables: Tables) -> Iterator[str]:
    yield from (_quoted(name.table) for name in tables)
    yield from (f"{_quoted(name.schema)}.{_quoted(name.table)}" for name in _all(tables))


def _named(text: str, tables: Tables) -> list[TableName]:
    words = {word.casefold() for word in re.findall(r"\w+", text)}
    return [name for name in tables if name.table.casefold() in words]


def _called(owner: str, text: str, tables: Tables) -> list[TableName]:
    """Return the tables that `owner` means in the statement: by name, or by an alias right after the name."""
    found = []
    for name in tables:
        alias = rf"\b{re.escape(name.table)}`?\s+(?:as\s+)?{re.escape(owner)}\b"
        if name.table.casefold() == owner.casefold() or re.search(alias, text, re.IGNORECASE):
            found.append(name)
    return found


def _quoted(name: str) -> str:
    """Quote a name for Spark SQL if it needs quotes."""
    return name if _PLAIN.fullmatch(name) else spark_identifier(name)
