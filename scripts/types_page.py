"""Print docs/types.md from the table of types that the code uses; `make docs` writes it."""

import sys

from auditlake.values.types import BUILT_IN, DOES_NOT_FIT, NUMERIC_OID, TEXT, ColumnType, Kind, column_type

_SQL_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "char": '"char"',
    "bpchar": "char(n)",
    "varbit": "bit varying",
}
_NUMERIC = ((10 << 16) | 2) + 4

_HEAD = """# Types

Written by `make docs` from the table that the code uses (`auditlake/values/types.py`). Exact text is what PostgreSQL's
output function prints under the settings that every connection pins ([the lake](lake.md)); it is the same from snapshot
and stream.

| PostgreSQL | Delta | NULL there, and exact in `_raw` |
|---|---|---|
"""

_TAIL = """
- **Arrays**: an empty one is an empty ARRAY; elements may be NULL. `box[]`, with semicolons between its elements, keeps
  its text.
- **Domains**: the stream names a domain's base type, not its modifier, so a domain over `numeric(10,2)` is text, as one
  over `numeric` is. A domain over a domain or an array is what its base type is; over an enum or a composite, text.
- **Enums** keep the label of the time: one renamed later stays what it was in the versions before.
- **json** is kept byte for byte, spaces and repeated keys too; SQL NULL is NULL, JSON null is the text `null`. With
  `auditlake.json = "variant"` under `[spark]` questions show it as VARIANT ([asking](asking.md)). None is stored: it
  sorts keys, prints 1.50 as 1.5 and 1e400 as infinity, is NULL where a key is repeated, and polars cannot read a table
  that has one.
- **Unknown types** (of extensions, or of a later PostgreSQL) are exact text: nothing is refused, nothing altered.
  Tested with those of hstore, citext, ltree, cube, seg, isn, lo, intarray and pgvector.
- **Tables** of 1,600 columns, PostgreSQL's most, are copied, captured and answered exactly. From 200 columns on Spark
  interprets the plan of a batch instead of compiling it: on two busy cores a merge into 1,600 took 80 s, a question 13.
  A table without any column, under REPLICA IDENTITY FULL, is followed as what it is, a number of equal rows; in other
  engines only its versions have a view.
- `reg…` types print what their object was called at the time, with its schema unless that is `pg_catalog`.

## Exact text

`exact_text` gives PostgreSQL's own text of any value ([asking](asking.md)); without Spark,
`auditlake.values.exact.exact_text` does. Floats print the digits PostgreSQL would (`1e23` is `9.999999999999999e+22`),
times their fraction without trailing zeros.

Looking whether values fit, and keeping the text of those that do not, cost lineitem's copy 1 to 3 % of its CPU time and
the batch that folds its changes into the history 6 %; of the fold's own computing 10 to 14 %, with a noise of 1 to 3 %
(`bench/values.py`).

## Encodings

The server converts to UTF-8, from whatever encoding the database has. SQL_ASCII has no characters to convert, and
`check` refuses it.

## Readers

These see the same rows and values in a table with deletion vectors, tested for every type above:

| reader | |
|---|---|
| Spark 4.2 with Delta 4.4 | |
| deltalake 1.6 (`QueryBuilder`) | not `to_pandas` or `to_pyarrow_dataset`: they refuse deletion vectors |
| polars 2 (`scan_delta`) | |
| DuckDB 1.5 (`delta_scan`) | `set timezone = 'UTC'` to see times as they are printed here |

A history lists no table feature that it does not use: `deletionVectors`, and `timestampNtz` where it has such a column.
"""


def page() -> str:
    """Compose the page."""
    rows = [*_typed_rows(), *_other_rows()]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + _TAIL


def _typed_rows() -> list[tuple[str, str, str]]:
    rows = [_row(name, column_type(type_oid, -1)) for name, (type_oid, _) in BUILT_IN.items()]
    decimal = column_type(NUMERIC_OID, _NUMERIC)
    numeric = ("`numeric(p,s)`, p ≤ 38, 0 ≤ s ≤ p", "DECIMAL(p,s)", DOES_NOT_FIT[decimal.kind])
    return [row for row in rows if row[1] != "STRING"] + [numeric]


def _other_rows() -> list[tuple[str, str, str]]:
    texts = [name for name, (type_oid, _) in BUILT_IN.items() if column_type(type_oid, -1) == TEXT]
    named = ", ".join(_named(name) for name in sorted(texts) if name != "numeric")
    return [
        ("arrays of the types of this page but `box`", "ARRAY of the element's", DOES_NOT_FIT[Kind.ARRAY]),
        ("domains", "as their base type", ""),
        ("`numeric` without precision, with p > 38, s < 0 or s > p", "STRING", ""),
        (named, "STRING", ""),
        ("enums, composites, ranges, types of extensions", "STRING", ""),
    ]


def _row(name: str, held: ColumnType) -> tuple[str, str, str]:
    return _named(name), held.delta.upper(), DOES_NOT_FIT.get(held.kind, "")


def _named(name: str) -> str:
    return f"`{_SQL_NAMES.get(name, name)}`"


if __name__ == "__main__":
    sys.stdout.write(page())
