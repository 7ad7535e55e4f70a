"""Filters on columns: operations by type, and how a value is read; walks compare their rows with PostgreSQL's."""

from typing import Any

import duckdb
import pytest

from auditlake.audit.filters import beside, filter_on, operations_of, parse_filters, signed, sort_column
from auditlake.errors import BadUsage
from auditlake.relation import Column

_TAGS = Column("tags", 1007, -1, key=False)
_CODE = Column("code", 1042, 8, key=False)
_FLOATS = Column("a", 1022, -1, key=True)
_JSON = Column("doc", 3802, -1, key=False)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (_TAGS, "null notnull"),
        (_CODE, "is isnot lt le gt ge has begins null notnull"),
        (_JSON, "is isnot has begins null notnull"),
        (Column("paid", 16, -1, key=False), "is isnot lt le gt ge null notnull"),
        (Column("total", 1700, -1, key=False), "is isnot lt le gt ge has begins null notnull"),
        (Column("ip", 869, -1, key=False), "is isnot has begins null notnull"),
        (Column("corner", 600, -1, key=False), "has begins null notnull"),
        (Column("period", 3904, -1, key=False), "has begins null notnull"),
        (Column("mac", 829, -1, key=False), "is isnot lt le gt ge has begins null notnull"),
    ],
)
def test_order_is_compared_only_if_it_is_postgresqls(column: Column, names: str) -> None:
    """An array of integers, a char(4), a jsonb, a boolean, a numeric, an inet, a point, an int4range and a macaddr."""
    assert " ".join(each.name for each in operations_of(column)) == names


def test_an_array_is_compared_with_a_list() -> None:
    """Its text is not read: `{1, 2}` has many spellings."""
    assert filter_on(_TAGS, signed("="), [1, 2]).sql() == ('h."tags" = ?', [[1, 2]])
    for sign, given in (("=", "{1,2}"), ("<", [1, 2]), ("=", None)):
        with pytest.raises(BadUsage, match="tags"):
            filter_on(_TAGS, signed(sign), given)
    with pytest.raises(BadUsage, match="cannot be sorted by tags"):
        sort_column("-tags", {"tags": _TAGS})


@pytest.mark.parametrize(("given", "value"), [("ab", "ab  "), ("ab ", "ab  ")])
def test_a_padded_value_is_compared_without_its_blanks(given: str, value: Any) -> None:
    """As PostgreSQL compares `char(n)`."""
    condition = filter_on(_CODE, signed("<>"), given).sql()
    assert condition == ("rtrim(h.\"code\", ' ') <> rtrim(?, ' ')", [value])


def test_a_column_may_have_a_name_that_looks_like_a_filter() -> None:
    """The longest name is not needed: the one that the table has."""
    odd = Column("a:is:b", 25, -1, key=False)
    (found,) = parse_filters(["a:is:b:isnot:c"], {"a:is:b": odd})
    assert (found.column, found.operation.sign, found.text, str(found)) == (odd, "<>", "c", "a:is:b:isnot:c")


def test_an_array_with_nan_is_beside_no_row_of_its_own() -> None:
    """A NaN in a list of Python's would be NULL to DuckDB, whose place is behind NaN."""
    rows = "(values (1, [1.0::double]), (2, ['nan'::double]), (3, ['nan'::double, 1.0])) h (id, a)"
    found = {}
    for sign in "<=>":
        condition, values = beside(_FLOATS, sign, "{NaN}").sql(fitting=("a",))
        query = f"select id from {rows} where {condition}"
        found[sign] = duckdb.execute(query, values).fetchall()
    assert found == {"<": [(1,)], "=": [(2,)], ">": [(3,)]}
