"""One table with columns of many types, whose values are at the limits of their types or of their texts."""

# ruff: noqa: RUF001 - one list after the other, with letters that look alike

from itertools import zip_longest

_INTEGERS = ("0", "1", "-1", "2", "-3", "7", "32767", "-32768")
_LONG = (*_INTEGERS, "65", "8364", "55296", "2147483646", "2147483647", "-2147483648", "1114112")
_FLOATS = ("0", "-0", "1", "-1", "0.5", "2.5", "-2.5", "1e15", "1e16", "1e-5", "NaN", "Infinity", "-Infinity")
_TIMES = ("2000-01-01", "1999-12-31 23:59:59.999999", "2024-02-29 12:34:56.789", "0001-01-01", "9999-12-31 23:59:59.5")
_DOCUMENTS = ("null", "true", "1.50", "1e2", '"a"', '"1"', "[]", '[1, "a", null, {"a": 1}]', "{}", '{"a": {"b": [1]}}')
UNUSUAL: dict[str, tuple[str, ...]] = {
    "bool": ("t", "f"),
    "int2": _INTEGERS,
    "int4": _LONG,
    "int8": (*_LONG, "9007199254740993", "9223372036854775807", "-9223372036854775808"),
    "numeric": (
        *(
            "0",
            "0.00",
            "1",
            "-1",
            "1.50",
            "-2.5",
            "2.5",
            "3",
            "1e-20",
            "-1e-20",
            "1e20",
            "NaN",
            "Infinity",
            "-Infinity",
        ),
        *(
            "99999999999999999999999999999999999999",
            "100000000000000000000000000000000000000",
            "32767.5",
            "-2147483648.5",
        ),
        *("9223372036854775807.5", "1e100", "1e-100", "1e308", "1e309"),
    ),
    "numeric(10,2)": ("0", "1", "-1", "1.50", "-2.50", "0.01", "3.55", "99999999.99", "-99999999.99"),
    "float4": (*_FLOATS, "0.1", "16777216", "3.4e38", "1e-45", "32767.5", "2147483647", "9.2233720e18"),
    "float8": (
        *(
            *_FLOATS,
            "0.1",
            "3",
            "1.7976931348623157e308",
            "5e-324",
            "2147483647.5",
            "-2147483648.5",
            "1e23",
            "3.4028236e38",
        ),
        *("32767.5", "9223372036854775807", "-9223372036854775808", "1e-46"),
    ),
    "text": (
        *(
            "",
            " ",
            "  a b  ",
            "a",
            "A",
            "abc",
            "aXbXc",
            "-7",
            " 12 ",
            "1.5",
            "NaN",
            "true",
            "x_y",
            "50%",
            "\\",
            "a'b",
            'a"b',
        ),
        *(
            "a\nb",
            "ß",
            "ẞ",
            "ſ",
            "İ",
            "ı",
            "\u212a",
            "ﬀ",
            "ǅ",
            "e\u0301",
            "\U0001f600",
            "\U00010400",
            "\u0085",
            "\u00a0",
        ),
        *("Σς", "ᾳ", "\ua7cb", "{a,b}", "null", "1e5", "0x1F", "1_000", "٣", "x" * 300),
    ),
    "varchar(8)": ("", "a", "A b", "  x ", "ß", "\U0001f600", "abcdefgh"),
    "char(5)": ("", "a", "ab ", "abcde", " b", "ß", "A"),
    "date": ("2000-01-01", "1999-12-31", "2024-02-29", "0001-01-01", "9999-12-31", "2021-01-03", "1582-10-14"),
    "timestamp": (*_TIMES, "2026-03-29 02:30", "2026-10-25 02:30", "2020-12-31 11:59:59", "1850-06-15 06:07:08.9"),
    "timestamptz": tuple(
        f"{each}+00" for each in (*_TIMES, "2026-03-29 01:00", "2026-10-25 00:30", "1850-06-15 06:07")
    ),
    "interval": (
        *(
            "0",
            "1 day",
            "-1 mon",
            "1 mon -1 day",
            "30 days",
            "24:00:00",
            "-00:00:00.000001",
            "1 year 2 mons 3 days 4:05:06.7",
        ),
        *("-1 years -2 mons +3 days -04:05:06.789", "178000000 years", "-2147483648 days", "2562047788:00:54.775807"),
    ),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "bytea": ("", "\\x00", "\\xff", "\\x61", "\\x5c", "\\xc3a9", "\\xc3", "\\x" + "ab" * 60),
    "jsonb": _DOCUMENTS,
    "json": (*_DOCUMENTS, '{"a": 1, "a": 2}', ' [ 1 , "\\u0000" ] '),
    "text[]": ("{}", "{a}", "{a,b}", "{NULL}", '{"x y","{","\\"",""}', '{"null",NULL}'),
    "int4[]": ("{}", "{1}", "{1,2,3}", "{3,NULL,1}", "{2147483647,-2147483648}"),
    "float8[]": ("{}", "{0}", "{-0,NaN,Infinity}", "{1e16,NULL,0.1}"),
    "numeric(6,2)[]": ("{}", "{1.5}", "{1.50,NULL,-0.01}"),
}
"""Values of each type; every column has NULL as well."""
COLUMNS = {kind: f"c{n}" for n, kind in enumerate(UNUSUAL)}
TABLE = "unusual"


def rows_of(kind: str) -> int:
    """Return in how many rows the column of a type has a value of its own: the last one is NULL."""
    return len(UNUSUAL[kind]) + 1


def unusual_schema() -> str:
    """Return statements that create the table and its rows."""
    columns = ", ".join(f"{name} {kind}" for kind, name in COLUMNS.items())
    rows = zip_longest(*UNUSUAL.values(), [None] * (max(map(rows_of, UNUSUAL)) - 1))
    texts = [f"({n}, {', '.join(map(_literal, row[:-1]))})" for n, row in enumerate(rows, 1)]
    last = f"({len(texts) + 1}, {', '.join(['null'] * len(COLUMNS))})"
    return (
        f"create table {TABLE} (id int primary key, {columns}); insert into {TABLE} values {', '.join([*texts, last])}"
    )


def _literal(text: str | None) -> str:
    return "null" if text is None else "'" + text.replace("'", "''") + "'"
