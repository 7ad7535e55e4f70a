"""Results that fail on a row, and formats that need distinct column names."""

from types import SimpleNamespace
from typing import Any, TextIO, cast

import pytest
from pyspark.sql import DataFrame

from auditlake.errors import BadUsage
from auditlake.query import output as module
from auditlake.query.output import OutputForm, answer


def _rows(*columns: str) -> DataFrame:
    return cast("DataFrame", SimpleNamespace(columns=list(columns)))


def test_a_query_that_fails_on_a_row_leaves_standard_output_open(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next statement of a script can still write its result."""

    def render(rows: DataFrame, _form: str, out: TextIO, *_: Any) -> int:
        if rows.columns == ["bad"]:
            raise BadUsage("the SQL fails on some row: DIVIDE_BY_ZERO")
        out.write("good\n")
        return 1

    monkeypatch.setattr(module, "render", render)
    with pytest.raises(BadUsage):
        answer([_rows("bad")], OutputForm("table", None))
    assert answer([_rows("good")], OutputForm("table", None)) == 1
    assert capsysbinary.readouterr().out == b"good\n"


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_two_columns_of_one_name_are_refused_before_the_first_row(
    form: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A JSON object and a Parquet reader would keep only one of the two."""
    with pytest.raises(BadUsage, match="several columns are named id") as caught:
        answer([_rows("id"), _rows("id", "id")], OutputForm(form, None))
    assert caught.value.hint is not None
    assert "alias" in caught.value.hint
    assert capsysbinary.readouterr().out == b""
