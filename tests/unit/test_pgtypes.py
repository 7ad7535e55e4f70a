"""Which Delta type holds which PostgreSQL type."""

import pytest

from auditlake.values.types import NUMERIC_OID, TEXT, Kind, base_type, column_type


@pytest.mark.parametrize(
    ("type_oid", "delta"),
    [
        (16, "boolean"),
        (17, "binary"),
        (20, "bigint"),
        (21, "smallint"),
        (23, "int"),
        (26, "bigint"),
        (700, "float"),
        (701, "double"),
        (1082, "date"),
        (1114, "timestamp_ntz"),
        (1184, "timestamp"),
    ],
)
def test_types_with_a_place_of_their_own(type_oid: int, delta: str) -> None:
    """The OIDs are those of pg_type.dat."""
    assert column_type(type_oid, -1).delta == delta


@pytest.mark.parametrize("type_oid", [25, 1043, 1042, 2950, 114, 3802, 1083, 1266, 1186, 1020, 869, 790, 16_400])
def test_everything_else_keeps_its_text(type_oid: int) -> None:
    """Text, uuid, json, time, interval, arrays of boxes, inet, money, and types we never heard of."""
    assert column_type(type_oid, -1) == TEXT


# The modifiers are atttypmod of a table with these columns, read from PostgreSQL 18.
@pytest.mark.parametrize(
    ("typmod", "delta"),
    [
        (655366, "decimal(10,2)"),
        (65540, "decimal(1,0)"),
        (2490372, "decimal(38,0)"),
        (2490410, "decimal(38,38)"),
    ],
)
def test_numeric_with_a_scale_that_fits(typmod: int, delta: str) -> None:
    """Precision and scale come from the modifier."""
    assert column_type(NUMERIC_OID, typmod).delta == delta


@pytest.mark.parametrize("typmod", [-1, 2555908, 329730, 131081])
def test_numeric_that_no_decimal_holds(typmod: int) -> None:
    """Unconstrained, numeric(39,0), numeric(5,-2) and numeric(2,5) keep their text."""
    assert column_type(NUMERIC_OID, typmod) == TEXT


@pytest.mark.parametrize("type_oid", [1082, 1114, 1184])
def test_infinity_has_no_place_in_dates(type_oid: int) -> None:
    """Dates and timestamps may not fit; PostgreSQL knows infinity, Delta does not."""
    assert column_type(type_oid, -1).may_not_fit


def test_nan_has_no_place_in_decimals_but_in_floats() -> None:
    """A float holds NaN itself."""
    assert column_type(NUMERIC_OID, 655366).may_not_fit
    assert column_type(701, -1).kind is Kind.FLOAT
    assert not column_type(701, -1).may_not_fit


@pytest.mark.parametrize(
    ("schema", "name", "decisive"),
    [
        ("pg_catalog", "int4", 23),
        ("pg_catalog", "_int4", 1007),
        ("pg_catalog", "char", 18),
        ("public", "int4", 16_400),
        ("pg_catalog", "of a later version", 16_400),
        ("pg_catalog", "_of a later version", 16_400),
    ],
)
def test_a_domain_is_its_base_type(schema: str, name: str, decisive: int) -> None:
    """Of a domain the stream names the base type; what is not built in stays what it is."""
    assert base_type(16_400, schema, name) == decisive


def test_arrays_hold_what_their_elements_hold() -> None:
    """The modifier of an array is that of its elements."""
    assert column_type(1007, -1).delta == "array<int>"
    assert column_type(1231, 655366).delta == "array<decimal(10,2)>"
    assert column_type(1231, -1).delta == "array<string>"
