"""Where the rows of a script go: to standard output or to a file, in one format.

A file appears whole, by renaming, or not at all. Several answers follow each other, CSV ones after an empty line;
Parquet has room for one.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from pyspark.sql import DataFrame

from auditlake.errors import BadUsage
from auditlake.query.render import render, write_parquet


@dataclass(frozen=True, slots=True)
class Form:
    """One of `render.FORMATS`, and the file to write; None is standard output."""

    name: str
    path: Path | None

    def check(self, statements: int) -> None:
        """Raise BadUsage where answers to so many statements cannot be written like this."""
        if self.name != "parquet":
            return
        if statements != 1:
            raise BadUsage(f"{statements} answers, and a Parquet file holds the rows of one", "Ask one at a time.")
        if self.path is None and sys.stdout.isatty():
            raise BadUsage("Parquet is not for a terminal", "Add --output FILE, or send standard output somewhere.")


def answer(results: Iterable[DataFrame], form: Form) -> int:
    """Write the rows of each result; return how many there were.

    Raises BadUsage where a query fails on some row, or the file cannot be written.
    """
    with _opened(form.path) as out:
        count = sum(_write(rows, form.name, out, first=not number) for number, rows in enumerate(results))
        out.flush()
    return count


def _write(rows: DataFrame, form: str, out: BinaryIO, *, first: bool) -> int:
    if form == "parquet":
        return write_parquet(rows, out)
    text = TextIOWrapper(out, encoding="utf-8", newline="")
    if form == "csv" and not first:
        text.write("\n")
    count = render(rows, form, text)
    text.detach()
    return count


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        out = unfinished.open("wb")
    except OSError as exc:
        raise BadUsage(f"{path} cannot be written: {exc.strerror}", "Choose another --output.") from exc
    try:
        with out:
            yield out
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
