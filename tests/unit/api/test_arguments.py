"""Arguments of wrong types: each is refused by its name, and no answer is empty because of one."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import auditlake
from auditlake.errors import BadUsage, ConfigError
from tests.small_lake import write_lake_with_manifest


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> auditlake.Lake:
    """The small lake."""
    return auditlake.Lake(write_lake_with_manifest(tmp_path_factory.mktemp("arguments") / "lake").root)


Ask = Callable[[Any, Any], Any]
_TEXTS: dict[str, Ask] = {
    "table": lambda lake, value: lake.row(value, 1),
    "actor": lambda lake, value: lake.log(actor=value),
    "reason": lambda lake, value: lake.log(reason=value),
    "column": lambda lake, value: lake.log(table="orders", column=value),
    "name": lambda lake, value: lake.as_of().table(value),
    "statement": lambda lake, value: lake.sql(value),
    "dialect": lambda lake, value: lake.sql("select 1 as a", dialect=value),
    "after": lambda lake, value: lake.changes(after=value),
    "source": lambda lake, value: lake.status(value),
    r"tables\[0\]": lambda lake, value: auditlake.changes(lake.location, tables=[value]),
    r"order_by\[1\]": lambda lake, value: lake.as_of().table("orders", order_by=["id", value]),
    r"where\[0\]\[0\]": lambda lake, value: lake.as_of().table("orders", where=[(value, "=", 1)]),
    r"where\[0\]\[1\]": lambda lake, value: lake.as_of().table("orders", where=[("id", value, 1)]),
}


@pytest.mark.parametrize("argument", _TEXTS)
@pytest.mark.parametrize("value", [7, b"orders", ["orders"], {"orders": 1}], ids=lambda value: type(value).__name__)
def test_a_text_is_no_other_value(lake: auditlake.Lake, argument: str, value: object) -> None:
    """Which would be compared with texts, and select nothing, or end in an error of Python."""
    with pytest.raises(BadUsage, match=f"^{argument} is of type {type(value).__name__}, need a text$"):
        _TEXTS[argument](lake, value)


_OTHERS: dict[str, Ask] = {
    "limit is of type str, need a whole number": lambda lake, _: lake.log(limit="5"),
    "offset is of type float, need a whole number": lambda lake, _: lake.as_of().table("orders", offset=1.5),
    "tables is of type int, need a text or several": lambda lake, _: lake.diff("0/150", tables=7),
    "ops is of type NoneType, need a text or several": lambda lake, _: lake.changes(ops=None),
    r"where\[0\] is of type str, need \(column, op, value\)": lambda lake, _: lake.as_of().table("orders", where="id"),
    "limit is of type bool, need a whole number": lambda lake, _: lake.log(limit=True),
    "unattributed is of type str, need True or False": lambda lake, _: lake.log(unattributed="no"),
    "follow is of type str, need True or False": lambda lake, _: lake.changes(follow="no"),
    "allow_gaps is of type int, need True or False": lambda lake, _: lake.changes(allow_gaps=0),
    "raw is of type NoneType, need True or False": lambda lake, _: lake.as_of().table("orders", raw=None),
    "'' is neither a moment nor a table": lambda lake, _: lake.diff("0/150", ""),
    "connection is of type str, need one of DuckDB": lambda lake, _: lake.log().to_duckdb("x"),
    "connection is of type int, need one of DuckDB": lambda lake, _: lake.as_of().table("orders").to_duckdb(0),
    "timeout_s is of type str, need seconds": lambda lake, _: lake.changes("beginning").take("5"),
    "a cursor is of type int, need a text": lambda lake, _: lake.changes("beginning").go_back(7),
    r"where\[0\] is of type tuple, need": lambda lake, _: lake.as_of().table("orders", where=[("id",)]),
}


@pytest.mark.parametrize("message", _OTHERS)
def test_numbers_lists_and_conditions_have_their_types(lake: auditlake.Lake, message: str) -> None:
    """The error names the argument and both types."""
    with pytest.raises(BadUsage, match=f"^{message}"):
        _OTHERS[message](lake, None)


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        ("note", 7, 0),
        ("id", 1, 1),
        ("id", "01", 1),
        ("price", Decimal("3.00"), 1),
        ("price", 3, 1),
        ("id", b"x", "the value for id is not a valid integer"),
        ("note", [1], "a value is of type list, need one of a column"),
        ("note", {"a": 1}, "a value is of type dict, need one of a column"),
        ("note", object(), "a value is of type object, need one of a column"),
        ("note", iter([1]), "a value is of type list_iterator, need one of a column"),
    ],
)
def test_a_value_of_python_is_read_as_its_text(
    lake: auditlake.Lake, column: str, value: object, found: int | str
) -> None:
    """By the rules of the column's type; what is no value of it is refused before anything is read."""
    rows = lake.as_of("0/250").table("orders", where=[(column, "=", value)])
    if isinstance(found, str):
        with pytest.raises(BadUsage, match=found):
            rows.to_arrow()
    else:
        assert rows.count() == found


_TOO_LONG: dict[str, Ask] = {
    "a value is a number of too many digits": lambda lake, value: lake.row("orders", value),
    "not a moment: a value of type int": lambda lake, value: lake.as_of(value),
    "limit is too large or negative": lambda lake, value: lake.log(limit=value),
}


@pytest.mark.parametrize("message", _TOO_LONG)
def test_a_number_that_python_does_not_print_is_refused(lake: auditlake.Lake, message: str) -> None:
    """It has more digits than Python writes into any message."""
    with pytest.raises(BadUsage, match=message):
        _TOO_LONG[message](lake, 10**5000)


def test_a_source_that_is_no_text_of_utf_8_is_no_conninfo(lake: auditlake.Lake) -> None:
    """Python has texts with half a character, libpq none."""
    with pytest.raises(ConfigError, match="is neither a libpq URI"):
        lake.status("host=\ud83d")
