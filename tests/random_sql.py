"""Random statements of the subset that both engines answer, and a lake of hostile values to ask them of.

`write_lake` writes two tables, a third of their rows changed in the tail. `statement` and `Draw` make SQL that is typed
as Spark types it: most of it is accepted by the embedded engine, the rest must be left to Spark.
"""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from auditlake.delta.append_table import AppendLog
from auditlake.lake.layout import (
    ACKNOWLEDGED_APP,
    CHANGES_APP,
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.values.exact_text import arrow_type, exact_texts
from auditlake.values.types import column_type
from tests.s3_server import chosen_lake
from tests.small_lake import T0_US, version, write_history, write_log


def _numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + 4


_TYPES = {
    "id": (23, -1),
    "small": (21, -1),
    "num": (23, -1),
    "big": (20, -1),
    "price": (1700, _numeric(10, 2)),
    "rate": (1700, _numeric(7, 5)),
    "part": (1700, _numeric(4, 4)),
    "wide": (1700, _numeric(38, 10)),
    "ratio": (701, -1),
    "real": (700, -1),
    "name": (25, -1),
    "note": (25, -1),
    "flag": (16, -1),
    "day": (1082, -1),
    "at": (1184, -1),
    "naive": (1114, -1),
    "code": (17, -1),
    "tags": (1007, -1),
}
COLUMNS = {name: column_type(*of).delta for name, of in _TYPES.items()}
TABLES = ("things", "others")
_NAMES = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "Ab",
    "b ",
    " b",
    "z",
    "é",
    "e\u0301",
    "ß",
    "ẞ",
    "İ",
    "\u0131",
    "😀",
    "a%b",
    "a_b",
    "\u00a0x",
    "\t",
    "10",
    "x\0xff",
]
_DAYS = [
    date(1, 1, 1),
    date(1582, 10, 10),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(2026, 11, 21),
    date(9999, 12, 31),
]
_TIMES = [  # of a column without a zone; those of `at` are the same in UTC
    datetime.fromisoformat(text)
    for text in (
        "0001-01-01T00:00:00",
        "1582-10-10T01:02:03",
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00",
        "2026-03-29T01:30:00",
        "2026-11-21T09:30:00.250000",
        "9999-12-31T23:59:59.999999",
    )
]
_FLOATS = [0.0, -0.0, 1.5, -1.5, 0.1, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"), 123456789.123]


def _row(draw: random.Random, number: int) -> dict[str, Any]:
    def some(*values: Any) -> Any:
        return None if draw.random() < 0.15 else draw.choice(values)

    return {
        "id": number,
        "small": some(0, 1, -1, 7, 32767, -32768, draw.randint(-99, 99)),
        "num": some(0, 1, -1, 2, 3, 10, draw.randint(-1000, 1000), 2**31 - 1),
        "big": some(0, 1, -1, 5, draw.randint(-(10**9), 10**9), 2**53, 2**53 + 1, -(2**62)),
        "price": some(
            Decimal("0.00"),
            Decimal("0.01"),
            Decimal("-1.50"),
            Decimal("99999999.99"),
            Decimal(f"{draw.randint(-9999, 9999)}e-2"),
        ),
        "rate": some(Decimal("0.00000"), Decimal("0.00001"), Decimal("-0.12345"), Decimal("99.99999")),
        "part": some(Decimal("0.0000"), Decimal("0.0001"), Decimal("-0.5000"), Decimal("0.9999")),
        "wide": some(Decimal("0e-10"), Decimal("0.0000000001"), Decimal("-1234567890123456789012345678.0123456789")),
        "ratio": some(*_FLOATS),
        "real": some(*(float(np.float32(value)) for value in (0.0, -0.0, 1.5, 0.1, float("nan"), float("inf")))),
        "name": some(*_NAMES),
        "note": some("x", "y", "xyz", "x-y", "100", "true", *_NAMES[:8]),
        "flag": some(True, False),
        "day": some(*_DAYS),
        "at": some(*(value.replace(tzinfo=UTC) for value in _TIMES)),
        "naive": some(*_TIMES),
        "code": some(b"", b"\x00", b"\xff\x01", b"a"),
        "tags": some([], [1], [1, None, 3]),
    }


def write_lake(root: Path, seed: int, rows: int, *, tail: bool = True) -> Lake:
    """Write two tables of random rows; in the tail a third of them is deleted or changed, and some are inserted."""
    draw, lake = random.Random(seed), chosen_lake(root)  # noqa: S311 - values, not secrets
    columns = tuple(Column(name, *of, key=name == "id") for name, of in _TYPES.items())
    relations, changes = RelationsLog(lake), []
    for oid, table in enumerate(TABLES, 1):
        name = TableName("public", table)
        held = [_row(draw, number) for number in range(rows)]
        open_rows = [row | version(0x100, None, "snapshot", None) for row in held]
        closed = [_row(draw, number) | version(0x100, 0x200, "snapshot", "delete") for number in range(rows, rows + 5)]
        for row in (*open_rows, *closed):
            if row["day"] is None and draw.random() < 0.5:
                row["_raw"] = [("name", "padded ")]  # not of a typed column: computing with that would be refused
        positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
        write_history(lake, name, columns, [*open_rows, *closed], positions, oid)
        number = relations.register(Relation(oid, name, ReplicaIdentity.DEFAULT, columns), Lsn(0x250))
        changes += [_change(draw, columns, name, number, row) for row in held[: rows // 3]]
        changes += [_insert(columns, name, number, _row(draw, n)) for n in range(rows + 10, rows + 10 + rows // 5)]
    relations.flush()
    if not tail:
        AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CHANGES_APP: 0x200, ACKNOWLEDGED_APP: 0x200})
        return lake
    for ordinal, change in enumerate(changes):
        change["ordinal"] = ordinal
    _write_log(lake, changes)
    return lake


def _texts(columns: Sequence[Column], row: dict[str, Any]) -> list[str | None]:
    held = [column_type(*column.type) for column in columns]
    values = (pa.array([row[column.name]], arrow_type(of)) for column, of in zip(columns, held, strict=True))
    return [exact_texts(each, of)[0].as_py() for each, of in zip(values, held, strict=True)]


def _insert(columns: Sequence[Column], name: TableName, relation: int, row: dict[str, Any]) -> dict[str, Any]:
    return _of(name, relation, "insert", None, _texts(columns, row))


def _change(
    draw: random.Random, columns: Sequence[Column], name: TableName, relation: int, row: dict[str, Any]
) -> dict[str, Any]:
    key = [str(row["id"]), *[None] * (len(columns) - 1)]
    if draw.random() < 0.3:
        return _of(name, relation, "delete", key, None)
    return _insert(columns, name, relation, _row(draw, row["id"])) | {"op": "update"}


def _of(name: TableName, relation: int, op: str, old: list[Any] | None, new: list[Any] | None) -> dict[str, Any]:
    at = datetime(2026, 11, 21, 9, tzinfo=UTC) + timedelta(seconds=9)
    place = {"lsn": 0x250, "ordinal": 0, "xid": 12, "time": at, "schema": name.schema, "table": name.table}
    return {**place, "op": op, "relation": relation, "old": old, "new": new}


def _write_log(lake: Lake, changes: list[dict[str, Any]]) -> None:
    at = datetime(2026, 11, 21, 9, tzinfo=UTC) + timedelta(seconds=9)
    transaction = {
        "lsn": 0x250,
        "end_lsn": 0x270,
        "xid": 12,
        "time": at,
        "time_mono": at,
        "tables": [f"public.{t}" for t in TABLES],
    }
    write_log(lake, [transaction], changes, acknowledged_lsn=0x281, current_us=T0_US + 100_000_000)


_NUMBERS = ("smallint", "int", "bigint", "decimal(10,2)", "decimal(7,5)", "decimal(4,4)", "double")
_LITERALS = {
    "int": ["0", "1", "2", "-1", "7", "100", "2147483647", "-2147483648"],
    "bigint": ["2147483648", "-3000000000", "9007199254740993"],
    "smallint": ["cast(3 as smallint)"],
    "decimal(10,2)": ["1.50", "0.01", "100.5", "-2.25", "cast(1 as decimal(10,2))"],
    "decimal(7,5)": ["0.00001", "-1.25", ".5"],
    "decimal(4,4)": ["0.0001", "-0.5", ".25"],
    "double": ["cast(2 as double)", "cast(num as double)"],
    "string": ["''", "'a'", "'x'", "'é'", "'ab'", "'Z'", "' '"],
    "boolean": ["true", "false"],
    "date": ["date '2026-11-21'", "date '1582-10-10'", "cast('1970-01-01' as date)"],
    "timestamp": ["timestamp '2026-11-21 09:30:00.25'", "timestamp '1970-01-01'"],
    "timestamp_ntz": ["naive"],
}


_PRINTED = ("int", "bigint", "smallint", "date", "boolean", "decimal(10,2)", "decimal(7,5)", "decimal(4,4)")
_SEARCHED, _PUT = ("'a'", "'x'", "' '"), ("''", "'yy'")
_PATTERNS = ("'a%'", "'%b%'", "'_'", "'__'", "'%'", "'x_z'", "''")


class Draw:
    """Random expressions over the columns of some tables, given by their aliases."""

    def __init__(self, draw: random.Random, aliases: Sequence[str]) -> None:
        self.draw = draw
        self.aliases = aliases

    def one(self, *choices: Any) -> Any:
        return self.draw.choice(choices)

    def column(self, kind: str) -> str:
        names = [name for name, of in COLUMNS.items() if of == kind]
        if not names:
            return self.literal(kind)
        name = self.one(*names)
        name = name.upper() if self.draw.random() < 0.05 else name
        return f"{self.one(*self.aliases)}.{name}" if len(self.aliases) > 1 or self.draw.random() < 0.3 else name

    def literal(self, kind: str) -> str:
        text = self.one(*_LITERALS.get(kind, ["null"]))
        if len(self.aliases) > 1 and text in {"naive", "cast(num as double)"}:
            return "null"
        return str(text)

    def kind(self) -> str:
        return str(self.one(*_NUMBERS, "string", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"))

    def of(self, kind: str, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.3:
            return self.column(kind) if self.draw.random() < 0.8 else self.literal(kind)
        if kind == "boolean":
            return f"({self.condition(depth)})"  # Spark refuses a predicate of a predicate without parentheses
        forms: list[Callable[[str, int], str]] = [self._case, self._coalesce]
        if kind in _NUMBERS:
            forms += [self._arithmetic] * 3 + [self._abs, self._nullif]
        if kind == "int":
            forms += [self._int_of] * 3
        if kind == "string":
            forms += [self._text] * 4
        if kind == "date":
            forms += [self._date_of]
        return str(self.one(*forms)(kind, depth - 1))

    def _date_of(self, _: str, depth: int) -> str:
        return f"cast({self.of('timestamp', depth)} as date)"

    def _case(self, kind: str, depth: int) -> str:
        first, other = self.of(kind, depth), self.of(kind, depth) if self.draw.random() < 0.7 else "null"
        if self.draw.random() < 0.3:
            return f"if({self.condition(depth)}, {first}, {other})"
        return f"case when {self.condition(depth)} then {first} else {other} end"

    def _coalesce(self, kind: str, depth: int) -> str:
        return f"{self.one('coalesce', 'nvl', 'ifnull')}({self.of(kind, depth)}, {self.of(self._near(kind), depth)})"

    def _near(self, kind: str) -> str:
        return str(self.one(kind, kind, *_NUMBERS)) if kind in _NUMBERS else kind

    def _arithmetic(self, kind: str, depth: int) -> str:
        sign = self.one("+", "-", "*", "*", "/", "%")
        text = f"{self.of(self._near(kind), depth)} {sign} {self.of(self._near(kind), depth)}"
        return f"({text})" if self.draw.random() < 0.7 else text

    def _abs(self, kind: str, depth: int) -> str:
        forms = ("abs({})", "(- {})", "round({}, 1)", "round({})")
        return str(self.one(*forms)).format(self.of(kind, depth))

    def _nullif(self, kind: str, depth: int) -> str:
        return f"nullif({self.of(kind, depth)}, {self.of(kind, depth)})"

    def _int_of(self, _: str, depth: int) -> str:
        part = self.one("year", "month", "day", "hour", "minute", "second")
        kind = (
            self.one("date", "timestamp", "timestamp_ntz")
            if part in {"year", "month", "day"}
            else self.one("timestamp", "timestamp_ntz")
        )
        return str(
            self.one(
                f"length({self.of('string', depth)})",
                f"extract({part} from {self.of(kind, depth)})",
                f"{part if part != 'second' else 'year'}({self.of(kind, depth)})",
                f"datediff({self.of('date', depth)}, {self.of('date', depth)})",
                f"cast({self.of('bigint', depth)} as int)",
            )
        )

    def _text(self, _: str, depth: int) -> str:
        inner = self.of("string", depth)
        return str(
            self.one(
                f"{inner} || {self.of('string', depth)}",
                f"concat({inner}, {self.of(self.one('int', 'string', 'date', 'boolean', 'decimal(10,2)'), depth)})",
                f"substring({inner}, {self.one(1, 2, 3)}, {self.one(0, 1, 2, 9)})",
                f"substr({inner}, {self.one(1, 2)})",
                f"{self.one('lower', 'upper')}({inner})",
                f"trim({inner})",
                f"replace({inner}, {self.one(*_SEARCHED)}, {self.one(*_PUT)})",
                f"cast({self.of(self.one(*_PRINTED), depth)} as string)",
                f"{self.one('greatest', 'least')}({inner}, {self.of('string', depth)})",
            )
        )

    def condition(self, depth: int) -> str:
        if depth <= 0:
            compared = f"id {self.one('<', '>')} 10" if len(self.aliases) == 1 else "true"
            return str(self.one(f"{self.column(self.kind())} is null", self.column("boolean"), compared))
        kind = self.kind()
        left, right = self.of(kind, depth - 1), self.of(self._near(kind), depth - 1)
        if kind in {"date", "timestamp"} and self.draw.random() < 0.5:
            right = self.one(
                "'2026-11-21'", "'1970-01-01'", "'2026-11-21 09:30:00'" if kind == "timestamp" else "'9999-12-31'"
            )
        return str(
            self.one(
                f"({left} {self.one('=', '<>', '<', '<=', '>', '>=', '<=>', '!=')} {right})",
                f"{left} {self.one('=', '<', '>=')} {right}",
                f"({left} {self.one('', 'not ')}between {right} and {self.of(kind, depth - 1)})",
                f"({left} {self.one('', 'not ')}in ({right}, {self.literal(kind)}, {self.literal(kind)}))",
                f"({left}) is {self.one('', 'not ')}null",
                f"({left}) is {self.one('', 'not ')}distinct from ({right})",
                f"({self.condition(depth - 1)}) {self.one('and', 'or')} ({self.condition(depth - 1)})",
                f"{self.condition(depth - 1)} {self.one('and', 'or')} {self.condition(depth - 1)}",
                f"not ({self.condition(depth - 1)})",
                f"not {self.condition(depth - 1)}",
                f"{self.of('string', depth - 1)} {self.one('', 'not ')}like {self.one(*_PATTERNS)}",
                f"id in (select num from {self.one(*TABLES)} where flag)" if len(self.aliases) == 1 else "true",
            )
        )

    def aggregate(self, depth: int) -> str:
        number = self.of(self.one(*_NUMBERS[:-1]), depth)
        value = self.of(self.kind(), depth)
        call = self.one(
            "count(*)",
            f"count({value})",
            f"count(distinct {value})",
            f"sum({number})",
            f"avg({number})",
            f"min({value})",
            f"max({value})",
            f"sum({self.column('decimal(10,2)')})",
            f"avg({self.column('decimal(10,2)')})",
            f"avg({self.column('int')})",
            f"sum({self.column('bigint')})",
            f"sum({self.column('decimal(10,2)')}) / {self.one('count(*)', 'count(num)', '3', '1.5')}",
            f"sum({self.column('decimal(38,10)')})",
            f"sum({number}) / nullif(count({value}), 0)",
        )
        return f"{call} filter (where {self.condition(1)})" if self.draw.random() < 0.1 else str(call)


def statement(draw: random.Random) -> str:
    """Return one random query."""
    form = draw.random()
    if form < 0.1:
        word = draw.choice(["union all", "union"])
        kinds = [Draw(draw, ("t",)).kind() for _ in range(draw.randint(1, 3))]
        return f" {word} ".join(_simple(draw, kinds, ordered=False) for _ in range(draw.randint(2, 3))) + draw.choice(
            ["", " order by 1"]
        )
    if form < 0.2:
        inner = _simple(draw, ["int", "string", "decimal(10,2)"], ordered=False, named=True)
        outer = draw.choice(
            [
                "select * from q",
                "select c0, count(*) from q group by c0",
                "select a.c0, b.c1 from q a join q b on a.c0 = b.c0",
                "select sum(c2), min(c1) from q where c0 > 1",
                "select q.* from q order by c0, c1, c2",
            ]
        )
        return (
            f"with q as ({inner}) {outer}"
            if draw.random() < 0.5
            else outer.replace("from q", f"from ({inner}) q")
            if " q b" not in outer
            else f"with q as ({inner}) {outer}"
        )
    if form < 0.5:
        return _grouped(draw)
    kinds = [Draw(draw, ("t",)).kind() for _ in range(draw.randint(1, 4))]
    return _simple(draw, kinds, ordered=draw.random() < 0.5)


def _from(draw: random.Random) -> tuple[str, Draw]:
    table, other = draw.choice(TABLES), draw.choice(TABLES)
    form = draw.random()
    if form < 0.6:
        return f"{table}", Draw(draw, (table,))
    if form < 0.7:
        return f"{table} as t", Draw(draw, ("t",))
    side = draw.choice(["join", "left join", "right join", "full outer join", "inner join"])
    both = Draw(draw, ("a", "b"))
    on = draw.choice(
        [
            "a.id = b.num",
            "a.id = b.id",
            "a.name = b.name",
            "a.day = b.day",
            "a.price = b.price and a.id < b.id",
            "a.ratio = b.ratio",
            "a.real = b.ratio and b.id < 9",
            f"a.id = b.id and {both.condition(1)}",
        ]
    )
    return f"{table} a {side} {other} b on {on}", both


def _simple(draw: random.Random, kinds: Sequence[str], *, ordered: bool, named: bool = False) -> str:
    from_, scope = _from(draw)
    columns = [scope.of(kind, draw.randint(0, 3)) for kind in kinds]
    shown = [f"{text} as c{n}" if named or draw.random() < 0.8 else text for n, text in enumerate(columns)]
    if not named and draw.random() < 0.05:
        shown = ["*"]
    where = f" where {scope.condition(draw.randint(1, 3))}" if draw.random() < 0.6 else ""
    if where and len(scope.aliases) == 1 and draw.random() < 0.2:
        where += f" and id {draw.choice(['', 'not '])}in (select num from {draw.choice(TABLES)})"
    if where and draw.random() < 0.3:
        inner, side = Draw(draw, ("x",)), Draw(draw, scope.aliases)
        kind = draw.choice(["int", "string", "decimal(10,2)", "double", "date"])
        compared = f"{inner.of(kind, 1)} {draw.choice(['=', '=', '<', '<=>'])} {side.of(kind, 1)}"
        more = f" and {inner.condition(1)}" if draw.random() < 0.5 else ""
        word = draw.choice(["", "not "])
        inside = draw.choice(["1", "x.id", "*"])
        where += f" and {word}exists (select {inside} from {draw.choice(TABLES)} x where {compared}{more})"
    distinct = "distinct " if draw.random() < 0.1 else ""
    order = ""
    if ordered and shown != ["*"]:
        keys = [
            f"{n + 1}{draw.choice(['', ' desc', ' asc', ' nulls last', ' desc nulls first'])}"
            for n in range(len(shown))
        ]
        order = " order by " + ", ".join(keys) + (f" limit {draw.randint(0, 9)}" if draw.random() < 0.5 else "")
    return f"select {distinct}{', '.join(shown)} from {from_}{where}{order}"


def _grouped(draw: random.Random) -> str:
    from_, scope = _from(draw)
    keys = [
        scope.of(scope.one("int", "string", "boolean", "date", "decimal(10,2)"), draw.randint(0, 1))
        for _ in range(draw.randint(0, 2))
    ]
    calls = [scope.aggregate(draw.randint(0, 2)) for _ in range(draw.randint(1, 3))]
    shown = [f"{text} as c{n}" if draw.random() < 0.7 else text for n, text in enumerate([*keys, *calls])]
    where = f" where {scope.condition(draw.randint(1, 2))}" if draw.random() < 0.5 else ""
    by = [str(n + 1) if draw.random() < 0.5 else key for n, key in enumerate(keys)]
    group = f" group by {', '.join(by)}" if keys else ""
    having = f" having {scope.one('count(*) > 1', f'{calls[0]} is not null')}" if keys and draw.random() < 0.3 else ""
    order = " order by 1" if draw.random() < 0.3 else ""
    return f"select {', '.join(shown)} from {from_}{where}{group}{having}{order}"
