"""Results that fail on a row, formats that need distinct column names, and where results are written."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from auditlake.errors import BadUsage
from auditlake.query import output as module
from auditlake.query.duckdb_views import RowsOfDuckDb
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


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def _row(name: str, value: str) -> RowsOfDuckDb:
    batch = pa.RecordBatch.from_pydict({name: [value]})
    return RowsOfDuckDb(batch.schema, iter([batch]))


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_terminal_gets_no_control_characters(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a value nor of a name, which it would execute; a file gets them."""
    monkeypatch.setattr(sys, "stdout", _Terminal(io.BytesIO(), "utf-8"))
    assert answer([_row("a", "b\tc\nd")], OutputForm(form, None)) == 1
    for name, value in (("a", "\x9b2J"), ("a\x7f", "b")):
        with pytest.raises(BadUsage, match="control characters"):
            answer([_row(name, value)], OutputForm(form, None))
        assert answer([_row(name, value)], OutputForm(form, tmp_path / "out")) == 1


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Whoever may write into the folder could have made one under the name of the unfinished file."""
    (tmp_path / "other").write_text("kept")
    (tmp_path / ".out.unfinished").symlink_to(tmp_path / "other")
    answer([_row("id", "7")], OutputForm("csv", tmp_path / "out"))
    assert (tmp_path / "other").read_text() == "kept"
    assert (tmp_path / "out").read_text() == "id\n7\n"


def test_a_pipe_or_a_device_is_written_and_stays(tmp_path: Path) -> None:
    """A file in the place of /dev/null would be the end of it for every process of the machine, if root asked."""
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert answer([_row("id", "7")], OutputForm("csv", pipe)) == 1
    assert (os.read(reader, 100), pipe.is_fifo()) == (b"id\n7\n", True)
    os.close(reader)
    assert [module._is_device(Path(each)) for each in ("/dev/null", "/dev/stdout", "/dev/none")] == [True, True, False]  # noqa: SLF001 - not tried with a device
