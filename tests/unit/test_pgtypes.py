"""Tests of the type mapping from PostgreSQL to Delta."""

import pytest

from auditlake.values.types import NUMERIC_OID, TEXT, Conversion, base_type, column_type, is_widened


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
def test_listed_types_map_to_a_delta_type(type_oid: int, delta: str) -> None:
    """The OIDs are those of pg_type.dat."""
    assert column_type(type_oid, -1).delta == delta


@pytest.mark.parametrize("type_oid", [25, 1043, 1042, 2950, 114, 3802, 1083, 1266, 1186, 1020, 869, 790, 16_400])
def test_other_types_map_to_string(type_oid: int) -> None:
    """Text, uuid, json, time, interval, arrays of boxes, inet, money, and unknown types keep their text."""
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
def test_numeric_within_38_digits_maps_to_decimal(typmod: int, delta: str) -> None:
    """Precision and scale are those of the modifier."""
    assert column_type(NUMERIC_OID, typmod).delta == delta


@pytest.mark.parametrize("typmod", [-1, 2555908, 329730, 131081])
def test_numeric_outside_decimal_maps_to_string(typmod: int) -> None:
    """Unconstrained, numeric(39,0), numeric(5,-2) and numeric(2,5) keep their text."""
    assert column_type(NUMERIC_OID, typmod) == TEXT


@pytest.mark.parametrize("type_oid", [1082, 1114, 1184])
def test_dates_and_timestamps_may_not_fit(type_oid: int) -> None:
    """PostgreSQL has infinity, Delta has not."""
    assert column_type(type_oid, -1).may_not_fit


def test_nan_does_not_fit_decimals_but_floats() -> None:
    """Floats represent NaN."""
    assert column_type(NUMERIC_OID, 655366).may_not_fit
    assert column_type(701, -1).kind is Conversion.FLOAT
    assert not column_type(701, -1).may_not_fit


@pytest.mark.parametrize(
    ("schema", "name", "base"),
    [
        ("pg_catalog", "int4", 23),
        ("pg_catalog", "_int4", 1007),
        ("pg_catalog", "char", 18),
        ("public", "int4", 16_400),
        ("pg_catalog", "of a later version", 16_400),
        ("pg_catalog", "_of a later version", 16_400),
    ],
)
def test_a_domain_maps_to_its_built_in_base_type(schema: str, name: str, base: int) -> None:
    """The stream names a domain's base type; a type whose base is not built in is unchanged."""
    assert base_type(16_400, schema, name) == base


def test_arrays_map_to_arrays_of_their_element_type() -> None:
    """The modifier of an array applies to its elements."""
    assert column_type(1007, -1).delta == "array<int>"
    assert column_type(1231, 655366).delta == "array<decimal(10,2)>"
    assert column_type(1231, -1).delta == "array<string>"


def _numeric(precision: int, scale: int) -> tuple[int, int]:
    return 1700, ((precision << 16) | scale) + 4


@pytest.mark.parametrize(
    ("was", "now", "held"),
    [
        ((1043, 104), (1043, 204), True),
        ((1043, 104), (25, -1), True),
        ((25, -1), (1043, -1), True),
        ((19, -1), (25, -1), True),
        ((1015, 104), (1009, -1), True),
        ((1043, 204), (1043, 104), False),
        ((25, -1), (1043, 104), False),
        ((1042, 8), (25, -1), False),
        ((21, -1), (23, -1), True),
        ((23, -1), (20, -1), True),
        ((1007, -1), (1016, -1), True),
        ((20, -1), (23, -1), False),
        ((23, -1), (25, -1), False),
        ((700, -1), (701, -1), False),
        (_numeric(8, 2), _numeric(12, 2), True),
        (_numeric(8, 2), _numeric(12, 4), False),
        (_numeric(8, 2), (1700, -1), False),
        (_numeric(12, 2), _numeric(8, 2), False),
        ((1114, 3), (1114, -1), True),
        ((1114, -1), (1114, 3), False),
        ((1114, -1), (1184, -1), False),
        ((16400, -1), (16400, -1), True),
        ((16400, -1), (16401, -1), False),
    ],
)
def test_only_types_that_keep_every_text_are_wider(was: tuple[int, int], now: tuple[int, int], held: bool) -> None:  # noqa: FBT001
    """A longer string, a longer integer, more digits before the same point, a finer time."""
    assert is_widened(was, now) is held
