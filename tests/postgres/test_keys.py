"""Keys on the command line: PostgreSQL's input rules select the row, or the command refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from auditlake.lake.layout import Lake
from auditlake.source.connection import Row, connect
from auditlake.values.input_syntax import spelling
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import Done, run_here
from tests.server import Server, execute

pytestmark = pytest.mark.pg

_SPELLINGS = {
    "int4": ["1", " 1 ", "+1", "-0", "007", "2147483648", "1_000", "0x1", "\u0661", ""],
    "int8": ["-9223372036854775808"],
    "int2": ["32768"],
    "oid": ["4294967295", "-1", "010", " +09", "0"],
    "bool": ["t", "TRUE", " tr", "y", "o", "of", "on", "1", "0", "", "2"],
    "numeric(10,2)": ["1.005", "1.5", "-0.00", "1.50e1", "99999999.99", "100000000", "NaN", "inf", ".5", "5.", "1e-3"],
    "numeric": ["1.50", "1e5", "1.5e-7", "-0.0", "Infinity", "-inf", "nan", "00012.50", "1" * 60 + ".123", "", "."],
    "numeric(3,-2)": ["12300", "12345", "-100", "0"],
    "numeric(2,5)": ["0.00012", "0.1"],
    "numeric(50,20)": ["1.1", "123456789012345678901234567890"],
    "float8": ["1.0", "1e400", "-0", "1e-400", "1e23", "nan", "+inf", "-Infinity", "5e-324", "1e16", "4.9e-324"],
    "float4": ["1.0", "0.1", "16777217", "4e38", "3.4028235e38", "3.4028236e38", "1e-45", "1e-46", "7.0385307e-26"]
    + [f"1.000000178813934326171874{rest}" for rest in ("99", "999999999999", "0")]
    + ["1.00000017881393432617187500", "1.00000017881393432617187501", "-0.0", "1e50"],
    "date": [
        "2026-1-1",
        "2026-02-29",
        "2024-02-29",
        "10000-01-01",
        "0044-03-15 BC",
        "4714-11-24 BC",
        "4714-11-23 BC",
        "5874897-12-31",
        "5874898-01-01",
        "0000-01-01",
        "Infinity",
        "02026-01-01",
        "0005-02-29 BC",
        "0004-02-29 BC",
        "2026-13-01",
        "2026-00-01",
        "2026-01-00",
        "1900-02-29",
        "2000-02-29",
        "0004-02-29",
        "26-01-01",
    ],
    "time": ["09:30", "9:30", "09:30:00.100", "24:00", "24:00:01", "00:00:00.0000001", "00:00:00.0000000", "9:5"],
    "time(3)": ["09:30:00.123", "09:30:00.1234", "09:30:00.1230"],
    "timestamp": [
        "2026-01-01",
        "2026-01-01T10:00:00.5",
        "2026-01-01 10:00+02",
        "0044-03-15 10:00:00 BC",
        "294276-12-31 23:59:59.999999",
        "294277-01-01",
        "4714-11-24 00:00:00 BC",
        " 2026-01-01 1:00 ",
        "infinity",
    ],
    "timestamptz": [
        "2026-01-01",
        "2026-01-01T10:00:00Z",
        "2026-01-01 10:00:00-03:30",
        "2026-01-01 10:00:00 +0530",
        "2026-01-01 10:00:00+05:30:15",
        "0001-01-01 01:00:00+02",
        "0001-12-31 23:00:00-02 BC",
        "2026-01-01 10:00 UTC",
        "294276-12-31 23:59:59-01",
        "2026-01-01 10:00:00.250+00",
        "2026-01-01 24:00:00",
    ],
    "uuid": [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
        "a0eebc99 9c0b",
        "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
    ],
    "bytea": ["\\xFF", "\\x ff 00", "ab", "a\\\\b", "\\001x", "\\x0", "\\400", "é", ""],
    "inet": [
        "10.0.0.1/32",
        "10.0.0.1/24",
        "::1/128",
        "2001:DB8::1",
        "2001:db8:0:0:1:0:0:1",
        "::ffff:1.2.3.4",
        "::",
        "1:0:0:2:0:0:0:3",
        "10.1",
        "010.0.0.1",
        "fe80::1%eth0",
        "1::/16",
        "1:2:3:4:5:6:0:8",
        "0:0:0:0:0:1:0:0/64",
    ],
    "cidr": ["10.0.0.0/8", "10.0.0.1", "10.0.0.1/24", "::/0", "2001:db8::/32", "10/8"],
    "macaddr": [
        "08:00:2B:01:02:03",
        "08-00-2b-01-02-03",
        "08002b:010203",
        "08002b-010203",
        "0800.2b01.0203",
        "0800-2b01-0203",
        "08002b010203",
        "08:00-2b:01:02:03",
        "08:00:2b:01:02",
    ],
    "macaddr8": ["08:00:2b:01:02:03", "08002b0102030405", "08-00-2b-01-02-03-04-05", "08002b:010203"],
    "money": [
        "-92233720368547758.08",
        "92233720368547758.08",
        "1",
        "$1",
        "-1",
        "-$1,234.5",
        "1.005",
        "92233720368547758.07",
        "92233720368547758.08",
        ".5",
        "-0",
        "1,2,3",
    ],
    "bit(3)": ["101", "10", "1010", "b101"],
    "varbit(4)": ["101", "", "10101"],
    "jsonb": [
        '{"a":1}',
        '{"b":1,"aa":2,"a":3,"a":4}',
        "[1.0,1e2,-0,1E-3]",
        '"é\\u00e9\\n\\u0001/\\/"',
        "NaN",
        "tru",
        '"\\u0000"',
        '"\\ud800"',
        "{}",
        "[]",
        " null ",
        "{'a':1}",
        '"\\ud83d\\ude00"',
        '{"é":1,"zz":2}',
        '"\x7f<"',
    ],
    "char(4)": ["a", "a   ", "abcde", "abcd ", "", "ab cd"],
    "varchar(5)": ["x "],
    "text": [" a "],
    "int4range": ["[1,2]"],
    "interval": ["1 day"],
}


def _accepted(given: str, type_oid: int, typmod: int) -> str | None:
    """Return the text by which a key of this type is searched; None if it is refused."""
    try:
        found = spelling(type_oid, typmod, given)
    except ValueError:
        return None
    return None if found.text == given and not found.exact else found.text


def _printed(conn: psycopg.Connection[Row], given: str) -> str | None:
    """Return PostgreSQL's text of the value it stores in column c of table t; None if it refuses."""
    try:
        conn.execute(sql.SQL("insert into t values ({})").format(sql.Literal(given)), prepare=False)
    except psycopg.DataError:
        return None
    result = conn.execute("delete from t returning c", prepare=False).pgresult
    assert result is not None
    value = result.get_value(0, 0)
    return None if value is None else value.decode()


def test_every_accepted_key_has_the_text_of_postgresql(database: str) -> None:
    """Values that PostgreSQL refuses or would round are refused."""
    wrong = {}
    with connect(database) as conn:
        for kind, spellings in _SPELLINGS.items():
            conn.execute(f"create temporary table t (c {kind})".encode())
            query = "select atttypid::int, atttypmod from pg_attribute where attrelid = 't'::regclass and attnum = 1"
            ((type_oid, typmod),) = conn.execute(query).fetchall()
            for given in spellings:
                text = _accepted(given, int(str(type_oid)), int(str(typmod)))
                if text not in {None, _printed(conn, given)}:
                    wrong[kind, given] = text
            conn.execute("drop table t")
    assert wrong == {}


_TABLES = {
    "n": ("numeric(10,2)", "1.01", ["1.01", "1.010", "101e-2"]),
    "f": ("float8", "1", ["1.0", "1", "1e0"]),
    "z": ("float8", "0", ["0", "0.0", "-0"]),
    "r": ("numrange", "[1,2)", ["[1,2)"]),
    "ti": ("time", "09:30", ["09:30", "9:30:00.0"]),
    "i": ("inet", "10.0.0.1", ["10.0.0.1/32"]),
    "j": ("jsonb", '{"a": 1}', ['{"a":1}', '{ "a" : 1 }', '{"a": 1.0}']),
    "m": ("macaddr", "08:00:2b:01:02:03", ["08-00-2b-01-02-03", "08002b:010203"]),
    "mo": ("money", "1", ["1", "$1", "1.00"]),
    "d": ("date", "10000-01-01", ["10000-01-01"]),
    "bc": ("date", "0044-03-15 BC", ["0044-03-15 BC", "0044-3-15 BC"]),
    "tz": ("timestamptz", "0044-03-15 12:00:00+00 BC", ["0044-03-15 14:00:00+02 BC"]),
    "nu": ("numeric", "1.5", ["1.5", "+1.5", "1.50"]),
    "b": ("bytea", "\\x6162", ["ab", "\\x6162"]),
}


@pytest.fixture(scope="module")
def lake(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with one row in each of the tables."""
    database = server.create_database("keys")
    dsn = server.dsn(database)
    with connect(dsn) as conn:
        for name, (kind, _, _) in _TABLES.items():
            conn.execute(f"create table public.{name} (id {kind} primary key)".encode())
    made = make_lake(dsn, tmp_path_factory.mktemp("keys") / "lake")
    with connect(dsn) as conn:
        for name, (_, value, _) in _TABLES.items():
            conn.execute(f"insert into public.{name} values ('{value}')".encode())
    capture(dsn, made)
    yield made
    server.drop_database(database)


def _row(lake: Lake, table: str, key: str) -> Done:
    return run_here(["row", "--json", "--lake", lake.root, table, "--", key])


def test_an_equal_key_in_another_form_finds_its_row(lake: Lake) -> None:
    """`row`, `blame` and `log --key` parse keys in the same way."""
    for table, (_, _, spellings) in _TABLES.items():
        for key in spellings:
            found = _row(lake, table, key)
            assert [json.loads(line)["op"] for line in found.stdout.splitlines()] == ["insert"], (table, key, found)
    for table, key in (("f", "1.0"), ("nu", "1.50"), ("z", "-0"), ("j", '{"a": 1.0}')):
        for command in (["blame", table, "--", key], ["log", "--table", table, f"--key={key}"]):
            found = run_here([command[0], "--json", "--lake", lake.root, *command[1:]])
            assert (found.code, len(found.stdout.splitlines()), found.stderr) == (0, 1, ""), command


@pytest.mark.parametrize(
    ("table", "key", "code", "message"),
    [
        ("n", "1.005", 2, "the value for id is not a valid numeric(10,2)"),
        ("d", "01/02/2026", 2, "Write YYYY-MM-DD"),
        ("r", "[1.0,2)", 7, "id of numrange"),
        ("nu", "1.51", 0, "no row of public.nu had this key"),
        ("f", "2", 0, "no row of public.f had this key"),
    ],
)
def test_a_key_with_several_texts_is_not_reported_absent(
    lake: Lake, table: str, key: str, code: int, message: str
) -> None:
    """A rounded key matches no row, one with several texts is refused, any other is reported absent."""
    found = _row(lake, table, key)
    assert (found.code, found.stdout) == (code, "")
    assert message in found.stderr
    assert run_here(["log", "--table", table, "--key", key, "--lake", lake.root]).code == code


def test_a_number_that_was_inserted_again_with_another_scale_is_not_deleted(database: str, tmp_path: Path) -> None:
    """1.000 is the key 1.00 again, 20 is not the key 2.0; of a key that is gone the last row is listed."""
    with connect(database) as conn:
        conn.execute("create table public.u (n numeric primary key, k int)")
    made = make_lake(database, tmp_path / "lake", name="again")
    execute(
        database,
        *("insert into u values (1.00, 7), (2, 7), (20, 7), (100, 7), (3.0, 7)", "delete from u"),
        *("insert into u values (1.000, 8), (2.0, 8), (3, 8)", "delete from u where n < 3"),
        *("insert into u values (1.0, 9)", "update u set n = 3.00 where n = 3"),
    )
    capture(database, made)
    found = run_here(["deleted", "u", "--since", "0/1", "--json", "--lake", made.root])
    assert found.code == 0, found.stderr
    assert sorted(json.loads(line)["key"]["n"] for line in found.stdout.splitlines()) == ["100", "2.0", "20"]


def test_a_key_that_was_inserted_again_with_another_text_is_not_deleted(database: str, tmp_path: Path) -> None:
    """An equal interval, jsonb or text without its blanks; a question by either text is about both rows."""
    again = {"interval": ("1 day", "24:00:00"), "jsonb": ("1", "1.0"), "bpchar": ("a ", "a"), "float8": ("0", "-0")}
    execute(database, *(f"create table {kind}s (k {kind} primary key)" for kind in again))
    made = make_lake(database, tmp_path / "lake", name="again")
    for kind, (first, second) in again.items():
        change = f"insert into {kind}s values ('{first}'); delete from {kind}s; insert into {kind}s values ('{second}')"
        execute(database, *change.split("; "))
    capture(database, made)
    for kind, (first, second) in again.items():
        found = run_here(["deleted", f"{kind}s", "--json", "--lake", made.root])
        assert (found.code, found.stdout) == (0, ""), kind
        events = [json.loads(line) for line in _row(made, f"{kind}s", first).stdout.splitlines()]
        assert [(each["op"], each["key"]["k"].rstrip()) for each in events] == [
            *(("insert", second), ("delete", first.rstrip()), ("insert", first.rstrip()))
        ], kind
        line: list[str | Path] = ["blame", "--json", "--lake", made.root, f"{kind}s", "--", first]
        assert [json.loads(each)["value"] for each in run_here(line).stdout.splitlines()] == [second], kind
        line = ["log", "--json", "--lake", made.root, "--table", f"{kind}s", f"--key={first}"]
        assert len(run_here(line).stdout.splitlines()) == 3, kind


def test_a_key_whose_equality_is_not_known_may_exist_under_another_text(database: str, tmp_path: Path) -> None:
    """A range of numbers, and a text under a collation that may take it for another one's equal."""
    folded = "update pg_collation set collisdeterministic = false where collname = 'folded'"
    execute(database, 'create collation folded from "C"', f"set allow_system_table_mods = on; {folded}")
    execute(
        database,
        "create table ranges (k numrange primary key)",
        "create table words (k text collate folded primary key)",
    )
    made = make_lake(database, tmp_path / "lake", name="again")
    execute(database, "insert into ranges values ('[1,2)')", "insert into words values ('a')", "delete from ranges")
    execute(
        database,
        "insert into ranges values ('[1.0,2)')",
        "insert into words values ('b')",
        "delete from words where k = 'b'",
    )
    capture(database, made)
    for table, kind in (("ranges", "numrange"), ("words", "text")):
        found = run_here(["deleted", table, "--json", "--lake", made.root])
        assert (found.code, len(found.stdout.splitlines())) == (0, 1)
        assert f"another text (k of {kind}): rows listed here" in found.stderr
    absent = _row(made, "words", "A")
    assert (absent.code, "k of text" in absent.stderr) == (7, True)
    assert "a row may exist under one of these" in _row(made, "words", "b").stderr
    assert _row(made, "words", "a").stderr == ""
    assert run_here(["log", "--table", "words", "--key", "A", "--lake", made.root]).code == 7
