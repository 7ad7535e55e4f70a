"""A table with a column of each type, in whose values equality or order of texts is a trap, and statements over it.

Every statement shows ids only, so that answers of PostgreSQL can be compared with those of an engine as they are.
"""

from collections.abc import Iterator

TYPES = {
    "boolean": ("t", "f"),
    "smallint": ("9", "10", "-1"),
    "integer": ("9", "10", "-1"),
    "bigint": ("9", "10", "-1"),
    "oid": ("9", "10", "4294967295"),
    "real": ("0", "-0", "9", "10", "NaN", "Infinity", "-Infinity"),
    "double precision": ("0", "-0", "9", "10", "NaN", "Infinity", "-Infinity"),
    "numeric(6,2)": ("1", "1.00", "9", "10", "-1"),
    "numeric": ("1.0", "1.00", "9", "10", "NaN", "Infinity"),
    'text collate "C"': ("a", "a ", "B", "é", ""),
    'varchar(5) collate "C"': ("a", "a ", "B", "é", ""),
    'char(5) collate "C"': ("a", "a  ", "B", "é", "", "ab"),
    'bpchar collate "C"': ("a", "a  ", "B", ""),
    '"char"': ("a", "B", ""),
    "name": ("a", "B", "é"),
    "bytea": ("\\x00", "\\x0001", "\\xff", "\\x"),
    "date": ("2026-01-09", "2026-01-10", "0999-12-31"),
    "time": ("09:30:00", "10:00:00", "09:30:00.5", "24:00:00"),
    "timetz": ("09:30:00+00", "10:30:00+01", "08:00:00-05"),
    "timestamp": ("2026-01-09 00:00:00", "2026-01-10 00:00:00.5"),
    "timestamptz": ("2026-01-09 00:00:00+00", "2026-01-09 01:00:00+01", "2026-01-10 00:00:00.5+00"),
    "interval": ("1 day", "24:00:00", "9 days", "10 days", "1 mon", "30 days"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ('{"a": 1}', '{"a":1}'),
    "jsonb": ('{"a": 1}', '{"a": 1.0}', '{"b": 1, "aa": 2}', "[9]", "[10]"),
    "inet": ("10.0.0.1", "9.0.0.1", "10.0.0.1/32", "10.0.0.1/8", "::1"),
    "cidr": ("10.0.0.0/8", "9.0.0.0/8", "::1"),
    "macaddr": ("08:00:2b:01:02:03", "08-00-2b-01-02-04"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "08-00-2b-01-02-03-04-06"),
    "money": ("$9.00", "$10.00", "-$1.00", "$1,000.00"),
    "bit(3)": ("001", "100", "010"),
    "bit varying": ("1", "10", "100", "011", ""),
    "int4range": ("[1,5)", "[1,4]", "(0,5)", "[9,10)", "empty"),
    "numrange": ("[1.0,2)", "[1,2)", "[9,10)"),
    "daterange": ("[2026-01-01,2026-01-05)", "[2026-01-01,2026-01-04]"),
    "tsrange": ("[2026-01-01,2026-01-05)", "[2026-01-01 00:00,2026-01-05)", "(,)"),
    "int4multirange": ("{[1,5)}", "{[1,3),[3,5)}", "{}"),
    "nummultirange": ("{[1.0,5)}", "{[1,5)}"),
    "tsvector": ("a b", "b a", "'a':1 'b'"),
    "tsquery": ("a & b", "a&b", "b & a"),
    "pg_lsn": ("0/9", "0/10", "1/0"),
    "xid": ("9", "10"),
    "xid8": ("9", "10"),
    "tid": ("(0,9)", "(0,10)"),
    "oidvector": ("9 10", "10 9"),
    "point": ("(0,0)", "(0,1)"),
    "box": ("(1,1),(0,0)", "(0,1),(1,0)", "(2,0.5),(0,0)"),
    "circle": ("<(0,0),1>", "<(5,5),1>"),
    "lseg": ("[(0,0),(1,1)]", "[(1,1),(0,0)]"),
    "path": ("[(0,0),(1,1)]", "[(5,5),(1,1)]"),
    "line": ("{1,1,1}", "{2,2,2}"),
    "regclass": ("pg_class", "pg_type"),
    "integer[]": ("{1,2}", "{1,10}", "{1,9}", "{}", "{NULL}", "{1,NULL}"),
    "numeric[]": ("{1.0}", "{1.00}", "{9}", "{10}"),
    "interval[]": ("{1 day}", "{24:00:00}"),
    "double precision[]": ("{0}", "{-0}", "{NaN}"),
    'char(3)[] collate "C"': ("{a}", '{"a "}', "{b,c}"),
    "mood": ("sad", "happy", "angry"),
}
"""Values of each type, as PostgreSQL reads them."""

MOOD = "create type mood as enum ('sad', 'ok', 'happy', 'angry')"
LARGEST = 8
"""No type has more values."""


def schema() -> Iterator[str]:
    """Yield the statements that make the table `t`, and its rows; column n is `c{n}`."""
    yield MOOD
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(TYPES))
    yield f"create table t (id int primary key, {columns})"


def rows() -> Iterator[str]:
    """Yield the statements that insert the rows: row n has the nth value of each type, NULL if there is none."""
    for number in range(LARGEST):
        values = [v[number] if number < len(v) else None for v in TYPES.values()]
        cells = ", ".join("null" if v is None else "'" + v.replace("'", "''") + "'" for v in values)
        yield f"insert into t values ({number}, {cells})"


def comparisons(column: str, literal: str) -> dict[str, str]:
    """Return the statements that compare a column, also with the value that this literal is."""
    return {
        "=": f"select id as n from t where {column} = {literal}",
        "<": f"select id as n from t where {column} < {literal}",
        "in query": f"select id as n from t where {column} in (select {column} from t where id = 1)",
        "using": f"select x.id * 10 + y.id as n from t x join t y using ({column})",
        "group": f"select min(id) as n from t where {column} is not null group by {column}",
        "union": f"select count(*) as n from (select {column} from t union select {column} from t) q",
        "max": f"select id as n from t where {column} = (select max({column}) from t)",
        "order": f"select id * 100 + rank() over (order by {column}) as n from t where {column} is not null",
    }


def together(statements: dict[int, str]) -> str:
    """Return one statement of the answers of all, each with its number."""
    return " union all ".join(f"select {number} as k, n from ({sql}) q{number}" for number, sql in statements.items())
