"""Types of PostgreSQL as the translation knows them, and how DuckDB holds their values. Pure.

numeric(p, s)     DECIMAL(p, s), at most 38 digits: every value has the scale s
numeric           PostgreSQL's text, because each value has a scale of its own (`numbers`)
timestamptz       TIMESTAMP in UTC, which is the time zone of the session
char(n)           the text without trailing blanks
json, jsonb, uuid the text
enums             the text, with the labels that the lake recorded
interval          INTERVAL, which the view of a column makes of its text
others            the text, which is shown and tested for NULL, and nothing else
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from auditlake.delta.sql import duckdb_type
from auditlake.relation import Column
from auditlake.values.exact_text import RAW
from auditlake.values.input_syntax import SQL_NAMES
from auditlake.values.types import BUILT_IN, BUILT_IN_NAMES, column_type, digits_of_decimal, element_of

_VARHDRSZ = 4
_ANOTHER = "another type"


@dataclass(frozen=True, slots=True)
class Type:
    """A type by PostgreSQL's internal name; `digits` and `scale` of a decimal, `length` of a char(n).

    `labels` are those of an enum, in its order if `is_ordered`. `may_be_row`: a type that is not known here may be
    composite.
    """

    name: str
    digits: int | None = None
    scale: int | None = None
    length: int | None = None
    element: "Type | None" = None
    labels: tuple[str, ...] = field(default=(), compare=False)
    may_be_row: bool = field(default=False, compare=False)
    is_ordered: bool = field(default=True, compare=False)

    @property
    def is_decimal(self) -> bool:
        """Return whether it is a numeric whose values all have one scale."""
        return self.scale is not None

    @property
    def shown(self) -> str:
        """Return the type's name in SQL."""
        if self.element is not None:
            return f"{self.element.shown}[]"
        return SQL_NAMES.get(self.name, self.name)

    @property
    def duckdb(self) -> str:
        """Return the type in which DuckDB holds its values."""
        if self.element is not None:
            return f"{self.element.duckdb}[]"
        if self.scale is not None:
            return f"decimal({self.digits},{self.scale})"
        return _DUCKDB.get(self.name, "varchar")

    @property
    def column_kind(self) -> str:
        """Return the type of a result's column, as a history's is named."""
        if self.element is not None:
            return f"array<{self.element.column_kind}>"
        if self.scale is not None:
            return f"decimal({self.digits},{self.scale})"
        return _KINDS.get(self.name, "string")

    @property
    def is_opaque(self) -> bool:
        """Return whether values are texts of a type that is not known here, or an array of them."""
        return (self.element or self).name.startswith((_ANOTHER, "map"))

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS

    @property
    def is_number(self) -> bool:
        return self.name in NUMBERS

    @property
    def is_text(self) -> bool:
        return self.name in TEXTS

    @property
    def is_time(self) -> bool:
        return self.name in TIMES

    @property
    def is_comparable(self) -> bool:
        """Return whether values can be compared and sorted here."""
        return self.name in _COMPARABLE or bool(self.labels)

    @property
    def is_element(self) -> bool:
        """Return whether an expression may make an array of the type; not of an own type, which may be an array."""
        if self.is_opaque:
            return self.name in _OPAQUE_ELEMENTS
        return self != NUMERIC and self.element is None and self.name not in _NO_ELEMENTS

    @property
    def is_groupable(self) -> bool:
        """Return whether equal values look alike in DuckDB: not 1.0 and 1.00, 0 and -0, a day and 24 hours."""
        if self.element is not None:
            return self.element.is_groupable
        return bool(self.labels) or (self.name in _COMPARABLE - {"float4", "float8", "interval"} and self != NUMERIC)

    @property
    def loses_zeros(self) -> bool:
        """Return whether DuckDB makes 0 of -0 if it chooses one of several values: it keeps an array by a sort key."""
        return self.element in {FLOAT4, FLOAT8}

    @property
    def may_have_mixed_texts(self) -> bool:
        """Return whether equal values may have different texts (`arithmetic.mixed_texts`)."""
        return self == NUMERIC or self.name in {"float4", "float8"}


_AS_HELD = ("bool", "int2", "int4", "int8", "float4", "float8", "date", "timestamp", "timestamptz", "bytea")
_KINDS = {name: column_type(BUILT_IN[name][0], -1).delta for name in _AS_HELD}
_DUCKDB = {name: duckdb_type(kind) for name, kind in _KINDS.items()}
_DUCKDB |= {"oid": "bigint", "timestamptz": "timestamp", "interval": "interval", "map": "map(varchar, varchar)"}

BOOL, INT2, INT4, INT8 = Type("bool"), Type("int2"), Type("int4"), Type("int8")
FLOAT4, FLOAT8, NUMERIC = Type("float4"), Type("float8"), Type("numeric")
TEXT, VARCHAR, BPCHAR, UUID = Type("text"), Type("varchar"), Type("bpchar"), Type("uuid")
DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL = Type("date"), Type("timestamp"), Type("timestamptz"), Type("interval")
JSON, JSONB, BYTEA, UNKNOWN = Type("json"), Type("jsonb"), Type("bytea"), Type("unknown")

INTEGERS = ("int2", "int4", "int8")
NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
"""In the order in which an operator widens its operands."""
TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
TIMES = ("date", "timestamp", "timestamptz")
"""In the order in which a comparison widens its operands."""
_COMPARABLE = frozenset({*NUMBERS, *TEXTS, *TIMES, "bool", "uuid", "bytea", "interval"})
_NO_ELEMENTS = frozenset({"interval", "timestamptz", "bpchar", "map"})
_OPAQUE_ELEMENTS = frozenset(f"{_ANOTHER} ({name})" for name in BUILT_IN if name != "box")  # separated by semicolons
_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_KNOWN = (_COMPARABLE | {"json", "jsonb"}) - {"interval"}
_OF_KINDS = {kind: Type(name) for name, kind in _KINDS.items()} | {"string": TEXT, RAW: Type("map"), "jsonb": JSONB}


def decimal(digits: int, scale: int) -> Type:
    """Return a numeric of one scale."""
    return Type("numeric", digits, scale)


def array(element: Type) -> Type:
    """Return the array type of a type."""
    return Type(f"{element.name}[]", element=element)


def type_held_as(kind: str) -> Type:
    """Return the type of a column of a history, or of a log, that is no column of the source."""
    return array(type_held_as(kind[len("array<") : -1])) if kind.startswith("array<") else _OF_KINDS[kind]


def as_decimal(of: Type) -> Type | None:
    """Return the decimal that holds all values of an integer type or a decimal; None for other types."""
    if of.is_decimal:
        return of
    return decimal(_INTEGER_DIGITS[of.name], 0) if of.name in _INTEGER_DIGITS else None


def shown_type(name: str, *, length: int | None = None, may_be_row: bool = False) -> Type:
    """Return a type whose values are shown and tested for NULL, and nothing else."""
    return Type(f"{_ANOTHER} ({name})", length=length, may_be_row=may_be_row)


def enum_type(recorded: Sequence[str] | None, labels: Mapping[str, str]) -> Type | None:
    """Return an enum by its recorded name and labels, by OID; None if the type of the column is none.

    PostgreSQL compares labels by their OIDs if these are even; a label that was added later, and not as the last one,
    has an odd OID, and its place is not recorded.

    Authority: src/backend/utils/adt/enum.c, `enum_cmp_internal`
    """
    if recorded is None or len(recorded) != 1 or not labels:
        return None
    oids = sorted(map(int, labels))
    return Type(
        recorded[0], labels=tuple(labels[str(oid)] for oid in oids), is_ordered=not any(oid % 2 for oid in oids)
    )


def type_of_column(column: Column) -> Type:
    """Return the type of a column of the source; its values are text if it is none that is known here."""
    held = column_type(column.type_oid, column.typmod)
    element = element_of(column.type_oid)
    if element is not None and held.element is not None:
        return array(_scalar(element, column.typmod))
    if BUILT_IN_NAMES.get(column.type_oid) == INTERVAL.name:
        return INTERVAL
    return _scalar(column.type_oid, column.typmod)


def _scalar(oid: int, typmod: int) -> Type:
    name = BUILT_IN_NAMES.get(oid, "")
    parts = digits_of_decimal(column_type(oid, typmod).delta)
    if parts is not None:
        digits, scale = parts
        # One more digit before the point: DuckDB writes a decimal(2,2) as .00.
        return decimal(digits + (digits == scale), scale)
    if name == "oid":
        return Type("oid")
    if name == "bpchar":
        return Type("bpchar", length=typmod - _VARHDRSZ if typmod >= _VARHDRSZ else None)
    return Type(name) if name in _KNOWN else shown_type(name or str(oid))
