"""Every function, operator and cast of PostgreSQL's catalog that its dialect translates, of unusual values. No JVM.

The catalog names the calls of one or two arguments; `unusual_calls.txt` has those with a syntax of their own, and
formats. Each is asked of columns: every value of the first, beside every one of the second. What PostgreSQL answers is
the dialect's answer, in text and type, or is refused by name; what PostgreSQL refuses is an error.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.query.postgres.statement import prepare_query
from tests.postgres_dialect import Both, answer_of_postgresql, copied_lake, create_database
from tests.server import Server
from tests.unusual_values import COLUMNS, TABLE, UNUSUAL, rows_of, unusual_schema

pytestmark = [pytest.mark.pg, pytest.mark.timeout(3600)]

CALLS = (Path(__file__).parents[1] / "data" / "sql" / "unusual_calls.txt").read_text().splitlines()
_FUNCTIONS = """
select proname, proargtypes::oid[]::regtype[]::text[] from pg_proc
 where prokind = 'f' and not proretset and pronargs between 1 and 2 and pronamespace = 'pg_catalog'::regnamespace
   and proname ~ '^[a-z_0-9]+$' and proname not in ('pg_sleep', 'position', 'repeat')
"""
_OPERATORS = "select oprname, array_remove(array[oprleft, oprright], 0)::regtype[]::text[] from pg_operator"
_ANY = {
    **dict.fromkeys(("anyelement", "anycompatible", '"any"'), ("int4", "text", "float8", "numeric")),
    **dict.fromkeys(("anyarray", "anycompatiblearray"), ("text[]", "int4[]", "float8[]")),
}
_KINDS = {**{kind: (kind,) for kind in UNUSUAL}, **_ANY, "numeric": ("numeric", "numeric(10,2)")}
_KINDS |= {"character varying": ("varchar(8)",), "character": ("char(5)",), "integer": ("int4",), "real": ("float4",)}
_KINDS |= {"bigint": ("int8",), "smallint": ("int2",), "double precision": ("float8",), "boolean": ("bool",)}
_KINDS |= {"timestamp without time zone": ("timestamp",), "timestamp with time zone": ("timestamptz",)}
_KINDS |= {"integer[]": ("int4[]",), "double precision[]": ("float8[]",), "numeric[]": ("numeric(6,2)[]",)}
_TARGETS = (
    *UNUSUAL,
    "numeric(5,2)",
    "numeric(20,0)",
    "varchar(2)",
    "char(3)",
    "bpchar",
    "text[]",
    "int8[]",
    "varchar(2)[]",
)
_PLACE = re.compile(r"\{([^{}']*)\}")
_FAILED = object()
_MOST_FAILURES = 3
"""How many values that PostgreSQL refuses are asked of one call, each in a statement of its own."""


def _calls_of_catalog(conn: "psycopg.Connection[Any]") -> Iterator[str]:
    for name, kinds in conn.execute(_FUNCTIONS.encode()).fetchall():
        for given in product(*(_KINDS.get(kind, ()) for kind in kinds)):
            yield f"{name}({', '.join(f'{{{kind}}}' for kind in given)})"
    for name, kinds in conn.execute(_OPERATORS.encode()).fetchall():
        for given in product(*(_KINDS.get(kind, ()) for kind in kinds)):
            yield "({" + f"}} {name} {{".join(given) + "})" if len(given) > 1 else f"({name} {{{given[0]}}})"
    yield from (f"{{{kind}}}::{to}" for kind in UNUSUAL for to in _TARGETS)


class Asked:
    """Calls over the table, in both."""

    def __init__(self, both: Both) -> None:
        self.both = both
        self.counts: Counter[str] = Counter()

    def differences(self, call: str) -> Iterator[str]:
        """Yield where the answers to a call differ."""
        kinds = [kind for kind in _PLACE.findall(call) if kind in UNUSUAL]
        sql = call
        for alias, kind in zip("ab", kinds, strict=False):
            sql = sql.replace(f"{{{kind}}}", f"{alias}.{COLUMNS[kind]}", 1)
        try:
            prepare_query(self.both.state, self._statement(sql, kinds, ""))
        except NotAnswerable:
            self.counts["refused"] += 1
            return
        except BadUsage as exc:
            answered = answer_of_postgresql(self.both.conn, self._statement(sql, kinds, " and false"))
            if not isinstance(answered, str):
                yield f"{call}: {exc.message}, which PostgreSQL does not refuse"
            return
        self.counts["answered"] += 1
        first = " and ".join(f"{alias}.id = 1" for alias, _ in zip("ab", kinds, strict=False))
        if different := self.both.difference(f"select pg_typeof({sql})::text from {_tables(kinds)} where {first}"):
            yield different
        expected = self._expected(sql, kinds)
        right = {key: text for key, text in expected.items() if text is not _FAILED}
        yield from self._compared(call, sql, kinds, right, is_whole=len(right) == len(expected))
        for key in [key for key in expected if key not in right][:_MOST_FAILURES]:
            yield from self._compared(call, sql, kinds, {key: _FAILED}, is_whole=False)

    def _expected(self, sql: str, kinds: Sequence[str]) -> dict[tuple[str, ...], Any]:
        """Return the text of each pair of rows, or that PostgreSQL refuses it."""
        answered = answer_of_postgresql(self.both.conn, self._statement(sql, kinds, ""))
        if not isinstance(answered, str):
            return {row[:-1]: row[-1] for row in answered[1]}
        found = {}
        for key in product(*(map(str, range(1, rows_of(kind) + 1)) for kind in kinds)):
            row = answer_of_postgresql(self.both.conn, self._statement(sql, kinds, _is_one_of(kinds, [key])))
            found[key] = _FAILED if isinstance(row, str) else row[1][0][-1]
        return found

    def _compared(
        self, call: str, sql: str, kinds: Sequence[str], expected: Mapping[tuple[str, ...], Any], *, is_whole: bool
    ) -> Iterator[str]:
        """Yield the differences of some pairs of rows: of halves of them, if one fails or is refused."""
        if not expected:
            return
        statement = self._statement(sql, kinds, "" if is_whole else _is_one_of(kinds, [*expected]))
        try:
            found = {row[:-1]: row[-1] for row in self.both.of_lake(statement)[1]}
        except (NotAnswerable, BadUsage) as exc:
            keys = [*expected]
            if len(keys) > 1:
                for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                    yield from self._compared(call, sql, kinds, {key: expected[key] for key in half}, is_whole=False)
                return
            self.counts["values refused"] += 1
            is_named = isinstance(exc, NotAnswerable) or expected[keys[0]] is _FAILED or _is_limit(exc.message)
            if not is_named or "DuckDB" in exc.message:
                yield f"{call} of {keys[0]}: {exc.message}, PostgreSQL: {expected[keys[0]]}"
            return
        self.counts["values"] += len(expected)
        wrong = [(key, found.get(key), text) for key, text in expected.items() if found.get(key, _FAILED) != text]
        if wrong:
            yield f"{call}: {len(wrong)} of {len(expected)} values differ: {wrong[:3]}"

    @staticmethod
    def _statement(sql: str, kinds: Sequence[str], condition: str) -> str:
        keys = "".join(f"{alias}.id::text, " for alias, _ in zip("ab", kinds, strict=False))
        bounds = " and ".join(f"{alias}.id <= {rows_of(kind)}" for alias, kind in zip("ab", kinds, strict=False))
        return f"select {keys}{sql} from {_tables(kinds)} where {bounds}{condition}"


def _tables(kinds: Sequence[str]) -> str:
    return ", ".join(f"{TABLE} {alias}" for alias, _ in zip("ab", kinds, strict=False))


def _is_one_of(kinds: Sequence[str], keys: Sequence[tuple[str, ...]]) -> str:
    place = "a.id" if len(kinds) == 1 else "a.id * 1000 + b.id"
    return (
        f" and {place} in ({', '.join(str(int(key[0]) * 1000 + int(key[1]) if key[1:] else key[0]) for key in keys)})"
    )


def _is_limit(message: str) -> bool:
    """Return whether a message is about a value that is too long to be computed here."""
    return any(each in message for each in ("more than 4,000 digits", "longer by more than"))


@pytest.fixture
def asked(server: Server, tmp_path: Path) -> Iterator[Asked]:
    """Both, with the same rows."""
    base = server.create_database()
    create_database(server.dsn(base), "unusual")
    options = "-c timezone=UTC -c statement_timeout=20s"
    with psycopg.connect(server.dsn("unusual"), autocommit=True, options=options) as conn:
        conn.execute(unusual_schema().encode())
        lake = Lake(tmp_path / "lake")
        write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
        yield Asked(Both(conn, copied_lake(conn, lake, (TABLE,))))
    server.drop_database("unusual")
    server.drop_database(base)


def test_calls_of_unusual_values_have_the_answers_of_postgresql(asked: Asked) -> None:
    """Of the catalog, and of the list; none of the list is refused."""
    different = [found for call in CALLS for found in asked.differences(call)]
    assert asked.counts["answered"] == len(CALLS)
    different += [found for call in _calls_of_catalog(asked.both.conn) for found in asked.differences(call)]
    print(dict(asked.counts))  # noqa: T201 - shown with -s
    assert not different, "\n".join(different)
    assert asked.counts["answered"] > len(CALLS) + 800
