"""Type mapping: PostgreSQL type and modifier → type of the column in `history`. The only such table.

Values are PostgreSQL's own text until they are typed. `column_type()` returns the Delta type, and `may_not_fit` whether
it cannot represent some values of the PostgreSQL type; these are NULL in the typed column and exact in `_raw`. A type
that is not listed here keeps its exact text in a STRING column: it is never refused and never altered.

    array    ARRAY of the element type's column type, for the array types of the types listed here
    domain   its base type's column type, without the domain's own modifier: the stream names only the base type
    others   enums, composites, ranges and types of extensions keep their text

    char(n)  STRING with PostgreSQL's padding, as it is printed and as keys are compared. Comparisons, GROUP BY, joins,
             `length` and `||` ignore trailing blanks, so whatever computes with values shows them without, here called
             bare; `_raw`, if it is shown too, then has the printed text of those that differ from it

Pure. The stages translate a `Conversion` to Spark SQL (`apply.typed_values`), to Arrow (`snapshot.column_codec`) and
back to text (`exact_text`). `scripts/types_page.py` generates docs/types.md from this table.

Authority: postgresql.org/docs/current/datatype.html; src/include/catalog/pg_type.dat for the OIDs
"""

import math
import re
from dataclasses import dataclass
from enum import Enum

NUMERIC_OID = 1700
OID_OID = 26
STRING_OIDS = frozenset({25, 1042, 1043})
"""Types whose binary format equals their text format."""

_VARHDRSZ = 4
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
MOST_DIGITS = 38
"""Of a decimal in Delta, Spark and DuckDB."""


class Conversion(Enum):
    """Conversion from the text of a value to a typed value."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    BYTEA = "bytea"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """Column type for the values of a PostgreSQL type; `delta` is a Delta (and Spark DDL) type name."""

    kind: Conversion
    delta: str
    element: "ColumnType | None" = None

    @property
    def may_not_fit(self) -> bool:
        """Return whether the typed column cannot represent some values: those in `DOES_NOT_FIT`."""
        return self.kind in DOES_NOT_FIT


DATE_LENGTH = len("2026-11-21")
"""Length of a date of the years 1 to 9999; every other date's text is longer or shorter."""
YEAR_LENGTH = len("2026")
"""Place of the first hyphen in a timestamp of the years 1 to 9999; 'infinity', '-infinity', longer years have another.

BC has the same, and ends in ' BC'.
"""
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Values of `numeric` that DECIMAL cannot represent."""

_OUTSIDE_YEARS = "infinity, -infinity, BC, years past 9999"

DOES_NOT_FIT = {
    Conversion.DECIMAL: ", ".join(NOT_FINITE),
    Conversion.DATE: _OUTSIDE_YEARS,
    Conversion.TIMESTAMP: _OUTSIDE_YEARS,
    Conversion.TIMESTAMPTZ: _OUTSIDE_YEARS,
    Conversion.ARRAY: "more than one dimension, a lower bound that is not 1, an element that does not fit",
}
"""Values of a kind that its typed column cannot represent; every other kind represents all values."""

TEXT = ColumnType(Conversion.TEXT, "string")

_TYPED = {
    "bool": ColumnType(Conversion.BOOLEAN, "boolean"),
    "bytea": ColumnType(Conversion.BYTEA, "binary"),
    "int8": ColumnType(Conversion.INTEGER, "bigint"),
    "int2": ColumnType(Conversion.INTEGER, "smallint"),
    "int4": ColumnType(Conversion.INTEGER, "int"),
    "oid": ColumnType(Conversion.INTEGER, "bigint"),  # unsigned 32 bits
    "float4": ColumnType(Conversion.FLOAT, "float"),
    "float8": ColumnType(Conversion.FLOAT, "double"),
    "date": ColumnType(Conversion.DATE, "date"),
    "timestamp": ColumnType(Conversion.TIMESTAMP, "timestamp_ntz"),
    "timestamptz": ColumnType(Conversion.TIMESTAMPTZ, "timestamp"),
}

# Every base type, range and multirange of pg_catalog that a column can have: OID, OID of its array type, typname.
_CATALOG = """
16 1000 bool, 17 1001 bytea, 18 1002 char, 19 1003 name, 20 1016 int8, 21 1005 int2, 22 1006 int2vector,
23 1007 int4, 24 1008 regproc, 25 1009 text, 26 1028 oid, 27 1010 tid, 28 1011 xid, 29 1012 cid, 30 1013 oidvector,
114 199 json, 142 143 xml, 194 0 pg_node_tree, 600 1017 point, 601 1018 lseg, 602 1019 path, 603 1020 box,
604 1027 polygon, 628 629 line, 650 651 cidr, 700 1021 float4, 701 1022 float8, 718 719 circle, 774 775 macaddr8,
790 791 money, 829 1040 macaddr, 869 1041 inet, 1033 1034 aclitem, 1042 1014 bpchar, 1043 1015 varchar,
1082 1182 date, 1083 1183 time, 1114 1115 timestamp, 1184 1185 timestamptz, 1186 1187 interval, 1266 1270 timetz,
1560 1561 bit, 1562 1563 varbit, 1700 1231 numeric, 1790 2201 refcursor, 2202 2207 regprocedure, 2203 2208 regoper,
2204 2209 regoperator, 2205 2210 regclass, 2206 2211 regtype, 2950 2951 uuid, 2970 2949 txid_snapshot,
3220 3221 pg_lsn, 3361 0 pg_ndistinct, 3402 0 pg_dependencies, 3614 3643 tsvector, 3615 3645 tsquery,
3642 3644 gtsvector, 3734 3735 regconfig, 3769 3770 regdictionary, 3802 3807 jsonb, 3904 3905 int4range,
3906 3907 numrange, 3908 3909 tsrange, 3910 3911 tstzrange, 3912 3913 daterange, 3926 3927 int8range,
4072 4073 jsonpath, 4089 4090 regnamespace, 4096 4097 regrole, 4191 4192 regcollation, 4451 6150 int4multirange,
4532 6151 nummultirange, 4533 6152 tsmultirange, 4534 6153 tstzmultirange, 4535 6155 datemultirange,
4536 6157 int8multirange, 4600 0 pg_brin_bloom_summary, 4601 0 pg_brin_minmax_multi_summary, 5017 0 pg_mcv_list,
5038 5039 pg_snapshot, 5069 271 xid8
"""
_OTHER_DELIMITER = frozenset({"box"})  # its arrays are delimited by semicolons: kept as text


def _read_catalog() -> dict[str, tuple[int, int]]:
    rows = (row.split() for row in _CATALOG.split(","))
    return {name: (int(type_oid), int(array_oid)) for type_oid, array_oid, name in rows}


BUILT_IN = _read_catalog()
"""OID and array type's OID (0 if it has none) by the name of a built-in type."""

BUILT_IN_NAMES = {type_oid: name for name, (type_oid, _) in BUILT_IN.items()}
_ELEMENTS = {array_oid: type_oid for type_oid, array_oid in BUILT_IN.values() if array_oid}


def column_type(type_oid: int, typmod: int) -> ColumnType:
    """Return the column type in `history` of a PostgreSQL type."""
    if type_oid == NUMERIC_OID:
        return _numeric(typmod)
    element_oid = _ELEMENTS.get(type_oid)
    if element_oid is None:
        return _TYPED.get(BUILT_IN_NAMES.get(type_oid, ""), TEXT)
    if BUILT_IN_NAMES[element_oid] in _OTHER_DELIMITER:
        return TEXT
    return array_of(column_type(element_oid, typmod))


def array_of(element: ColumnType) -> ColumnType:
    """Return the column type of an array."""
    return ColumnType(Conversion.ARRAY, f"array<{element.delta}>", element)


def digits_of_decimal(delta: str) -> tuple[int, int] | None:
    """Return those of a decimal by the name of its type; None for other types."""
    match = _DECIMAL.fullmatch(delta)
    return None if match is None else (int(match[1]), int(match[2]))


def digits_of_numeric(typmod: int) -> tuple[int, int]:
    """Return precision and scale of a `numeric` with a modifier; the scale has 11 bits and a sign.

    Authority: src/backend/utils/adt/numeric.c, `make_numeric_typmod`
    """
    return (typmod - _VARHDRSZ) >> 16 & 0xFFFF, (((typmod - _VARHDRSZ) & 0x7FF) ^ 1024) - 1024


def is_widened(was: tuple[int, int], now: tuple[int, int]) -> bool:
    """Return whether every value of type `was` has the same text in type `now`; both are a type's OID and modifier.

    A history's column can then be kept when the source's column changes its type. A rewrite by ALTER TABLE … USING is
    not distinguished from a plain type change, because neither is in the stream.
    """
    if was == now:
        return True
    elements = _ELEMENTS.get(was[0]), _ELEMENTS.get(now[0])
    if elements[0] is not None and elements[1] is not None:
        return is_widened((elements[0], was[1]), (elements[1], now[1]))
    names = BUILT_IN_NAMES.get(was[0], ""), BUILT_IN_NAMES.get(now[0], "")
    if names[0] in _STRING_LENGTHS and names[1] in {"text", "varchar"}:
        return _length(names[0], was[1]) <= _length(names[1], now[1])
    if names[0] in _WHOLE_NUMBERS and names[1] in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(names[0]) < _WHOLE_NUMBERS.index(names[1])
    if names == ("numeric", "numeric"):
        same_scale = (was[1] - _VARHDRSZ) & 0xFFFF == (now[1] - _VARHDRSZ) & 0xFFFF
        return _VARHDRSZ <= was[1] <= now[1] and same_scale
    return names[0] == names[1] and names[0] in _WITH_PRECISION and (now[1] == -1 or 0 <= was[1] <= now[1])


def element_of(type_oid: int) -> int | None:
    """Return the element type of a built-in array type; None for other types."""
    return _ELEMENTS.get(type_oid)


def is_built_in(type_oid: int) -> bool:
    """Whether a type is PostgreSQL's own: the text of its values never changes, as that of an enum's labels may."""
    return type_oid in BUILT_IN_NAMES or type_oid in _ELEMENTS


def is_padded(type_oid: int) -> bool:
    """Return whether trailing blanks do not count in values of this type: `char(n)`, also without a length."""
    return type_oid == BUILT_IN["bpchar"][0]


def has_padded_elements(type_oid: int) -> bool:
    """Return whether it is the type of arrays of `char(n)`."""
    return type_oid == BUILT_IN["bpchar"][1]


_WHOLE_NUMBERS = ("int2", "int4", "int8")
_STRING_LENGTHS: dict[str, float] = {"text": math.inf, "varchar": math.inf, "name": 63}
_WITH_PRECISION = frozenset({"timestamp", "timestamptz", "time", "timetz", "varbit"})


def _length(name: str, typmod: int) -> float:
    return _STRING_LENGTHS[name] if typmod < _VARHDRSZ else typmod - _VARHDRSZ


def base_type(type_oid: int, base_schema: str, base_name: str) -> int:
    """Return the type that determines a column's text: a domain's base type if that is built in, else `type_oid`.

    `base_schema` and `base_name` come from the stream's Type message, for the snapshot from the catalog.
    """
    if base_schema != "pg_catalog":
        return type_oid
    if base_name in BUILT_IN:
        return BUILT_IN[base_name][0]
    element = base_name.removeprefix("_")
    if element != base_name and element in BUILT_IN:
        return BUILT_IN[element][1]
    return type_oid


def _numeric(typmod: int) -> ColumnType:
    if typmod < _VARHDRSZ:
        return TEXT
    precision, scale = digits_of_numeric(typmod)
    if precision > MOST_DIGITS or not 0 <= scale <= precision:
        return TEXT
    return ColumnType(Conversion.DECIMAL, f"decimal({precision},{scale})")
