"""The one table of types: PostgreSQL type and modifier → the type of the column in `history`.

A value travels as PostgreSQL's own text. `column_type()` says which Delta type holds it, and `may_not_fit` whether
some values of the type have no place there; those are NULL in the typed column and exact in `_raw`. A type that is
not listed here is kept as its exact text in a STRING column: never refused, never altered.

    array    ARRAY of what its element type is, for the array types of the types listed here
    domain   what its base type is, without the domain's own modifier: the stream names the base type alone
    others   enums, composites, ranges and types of extensions keep their text

Pure; the stages turn a `Kind` into Spark SQL (`apply.typing`), into Arrow (`snapshot.select`) and back into text
(`exact`). docs/types.md is written from this table.

Authority: postgresql.org/docs/current/datatype.html; src/include/catalog/pg_type.dat for the OIDs
"""

from dataclasses import dataclass
from enum import Enum

NUMERIC_OID = 1700
OID_OID = 26
STRING_OIDS = frozenset({25, 1042, 1043})
"""Types whose binary form is their text."""

_VARHDRSZ = 4
_MAX_PRECISION = 38


class Kind(Enum):
    """How the text of a value becomes a typed value."""

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
    """Where values of one PostgreSQL type live; `delta` is a Delta (and Spark DDL) type name."""

    kind: Kind
    delta: str
    element: "ColumnType | None" = None

    @property
    def may_not_fit(self) -> bool:
        """Whether some values have no place in the typed column: `DOES_NOT_FIT` says which."""
        return self.kind in DOES_NOT_FIT


_OUTSIDE_YEARS = "infinity, -infinity, BC, years past 9999"

DOES_NOT_FIT = {
    Kind.DECIMAL: "NaN, Infinity, -Infinity",
    Kind.DATE: _OUTSIDE_YEARS,
    Kind.TIMESTAMP: _OUTSIDE_YEARS,
    Kind.TIMESTAMPTZ: _OUTSIDE_YEARS,
    Kind.ARRAY: "more than one dimension, a lower bound that is not 1, an element that does not fit",
}
"""Which values of a kind have no place in their typed column; of every other kind all have."""

TEXT = ColumnType(Kind.TEXT, "string")

_TYPED = {
    "bool": ColumnType(Kind.BOOLEAN, "boolean"),
    "bytea": ColumnType(Kind.BYTEA, "binary"),
    "int8": ColumnType(Kind.INTEGER, "bigint"),
    "int2": ColumnType(Kind.INTEGER, "smallint"),
    "int4": ColumnType(Kind.INTEGER, "int"),
    "oid": ColumnType(Kind.INTEGER, "bigint"),  # unsigned 32 bits
    "float4": ColumnType(Kind.FLOAT, "float"),
    "float8": ColumnType(Kind.FLOAT, "double"),
    "date": ColumnType(Kind.DATE, "date"),
    "timestamp": ColumnType(Kind.TIMESTAMP, "timestamp_ntz"),
    "timestamptz": ColumnType(Kind.TIMESTAMPTZ, "timestamp"),
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
_OTHER_DELIMITER = frozenset({"box"})  # elements of its arrays stand between semicolons: kept as text


def _read_catalog() -> dict[str, tuple[int, int]]:
    rows = (row.split() for row in _CATALOG.split(","))
    return {name: (int(type_oid), int(array_oid)) for type_oid, array_oid, name in rows}


BUILT_IN = _read_catalog()
"""OID and OID of the array type (0: there is none) by the name of a built-in type."""

_NAMES = {type_oid: name for name, (type_oid, _) in BUILT_IN.items()}
_ELEMENTS = {array_oid: type_oid for type_oid, array_oid in BUILT_IN.values() if array_oid}


def column_type(type_oid: int, typmod: int) -> ColumnType:
    """Say where a column of this type lives in `history`."""
    if type_oid == NUMERIC_OID:
        return _numeric(typmod)
    element_oid = _ELEMENTS.get(type_oid)
    if element_oid is None:
        return _TYPED.get(_NAMES.get(type_oid, ""), TEXT)
    if _NAMES[element_oid] in _OTHER_DELIMITER:
        return TEXT
    element = column_type(element_oid, typmod)
    return ColumnType(Kind.ARRAY, f"array<{element.delta}>", element)


def base_type(type_oid: int, base_schema: str, base_name: str) -> int:
    """Say which type decides for a column of type `type_oid`: for a domain, the base type where that is built in.

    `base_schema` and `base_name` are what the stream's Type message gives, and the catalog for the snapshot.
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
    # numeric.c: typmod = ((precision << 16) | (scale & 0x7ff)) + VARHDRSZ; the scale is 11 bits, signed.
    if typmod < _VARHDRSZ:
        return TEXT
    precision = ((typmod - _VARHDRSZ) >> 16) & 0xFFFF
    scale = (((typmod - _VARHDRSZ) & 0x7FF) ^ 1024) - 1024
    if precision > _MAX_PRECISION or not 0 <= scale <= precision:
        return TEXT
    return ColumnType(Kind.DECIMAL, f"decimal({precision},{scale})")
