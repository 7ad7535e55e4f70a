"""The Python API of a lake: the audit questions, tables as of a moment, and live changes. No Spark, no JVM.

    lake = auditlake.Lake("./lake")
    for event in lake.row("orders", 7):
        print(event.commit.time, event.commit.actor, event.changed)
    prices = lake.as_of("-2h").table("public.orders").to_pandas()

Each method reads the lake when it is called, so two calls may see different moments; `as_of` pins one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import pyarrow as pa

from auditlake.api import results
from auditlake.api.arguments import (
    Condition,
    given_conditions,
    given_names,
    require_count,
    require_flags,
    require_texts,
    require_texts_or_none,
)
from auditlake.api.results import Exportable, Found, RowHistory, SqlRows, TableInfo
from auditlake.audit.answers import BlamedColumn, DeletedRow, RowDifference, differences
from auditlake.audit.lake_reader import Reader
from auditlake.audit.queries import DiffQuestion, LogQuestion, RowQuestion, blame_of, deleted_of, life_of, log_of
from auditlake.audit.row_key import as_written
from auditlake.audit.state import Page, StateRequest, columns_of, open_state, state_query
from auditlake.audit.transactions import Transaction
from auditlake.delta.sql import open_duckdb
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.feed.feed import Feed
from auditlake.feed.request import FeedRequest
from auditlake.lake import layout
from auditlake.lake.column_names import shown_in_state
from auditlake.lake.duckdb_rows import bare, quoted
from auditlake.lake.gaps import Gap
from auditlake.lake.histories import ALL
from auditlake.lake.history import HistoryTable
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.messages import noted
from auditlake.query.exported_names import names_of_views
from auditlake.sql_names import standard_identifier
from auditlake.status import Status, read_status
from auditlake.temporal.moments import read_known
from auditlake.temporal.table_lookup import mentioned
from auditlake.temporal.when import written
from auditlake.values.exact_text import stored_texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

When = str | datetime
"""A moment: a WHEN as on the command line, or a datetime with a time zone."""
Dialect = Literal["spark", "postgres"]
_RAW = "_raw"
_Method = TypeVar("_Method", bound=Callable[..., Any])


def opened(lake: "Lake") -> layout.Lake:
    """Return the lake as this object opened it, for entry points whose questions it does not offer."""
    return lake._lake  # noqa: SLF001 - it is no part of the public class


@contextmanager
def _damage_named(lake: layout.Lake) -> Iterator[None]:
    """Raise an error that names the damaged file of a lake, in place of one that such a file caused."""
    try:
        yield
    except Exception as exc:
        from auditlake.verify.damage import damage_behind  # noqa: PLC0415 - only after a failure

        if (damage := damage_behind(exc, lake)) is not None:
            raise damage from exc
        raise


def _question(method: _Method) -> _Method:
    """Have a method of a class with a `_lake` name the damaged file that it fails at, and collect its notices."""

    @wraps(method)
    def asked(self: "Lake | Moment", *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method
        with _damage_named(self._lake), noted() as notes:
            answer = method(self, *given, **named)
        return replace(answer, notes=tuple(notes)) if isinstance(answer, Found) else answer

    return cast("_Method", asked)


class Lake:
    """A lake, by its folder or the URL of one in an object store."""

    def __init__(self, location: str | Path) -> None:
        """Open the lake in a folder, or at the URL of an object store (`s3://bucket/folder`).

        Raises LakeUnusable if there is none, BadUsage if the location cannot be one.
        """
        self._lake = layout.Lake.at(location)
        require_manifest(self._lake)

    def __repr__(self) -> str:
        return f"Lake({str(self._lake.root)!r})"

    @property
    def location(self) -> str:
        """The lake's folder, or its URL in an object store."""
        return str(self._lake.root)

    @_question
    def log(  # noqa: PLR0913 - independent filters, all optional
        self,
        *,
        table: str | None = None,
        key: object = None,
        column: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
        unattributed: bool = False,
        since: When | None = None,
        until: When | None = None,
        limit: int | None = 20,
    ) -> Found[Transaction]:
        """Return transactions, newest first: when, who, why, which tables, how many changes.

        `key` and `column` select those that touched a row or changed a column of `table`; `actor` is a whole name,
        compared without case, `reason` a substring. `since` and `until` are inclusive. `limit=None` is all.

        Raises BadUsage, NotAnswerable.
        """
        require_texts_or_none(table=table, column=column, actor=actor, reason=reason)
        require_count("limit", limit)
        require_flags(unattributed=unattributed)
        if table is None and key is not None:
            raise BadUsage("a key needs a table", "Give table, too.")
        keys = () if key is None else as_written(key)
        span = written(since), written(until)
        question = LogQuestion(table, keys, column, actor, reason, unattributed, *span, limit)
        return Found(tuple(log_of(self._reader(), question)), results.TRANSACTIONS)

    @_question
    def row(self, table: str, key: object, *, since: When | None = None, until: When | None = None) -> RowHistory:
        """Return the history of one row, newest first; nothing if no row ever had the key.

        `key` is a value, a sequence of values for a composite key, or a mapping from column to value.

        Raises BadUsage, NotAnswerable.
        """
        require_texts(table=table)
        reader = self._reader(table)
        life = life_of(reader, RowQuestion(table, as_written(key), written(since), written(until)))
        entries = list(life.entries())
        gaps = tuple(each for each in entries if isinstance(each, Gap))
        return RowHistory(tuple(each for each in entries if not isinstance(each, Gap)), results.EVENTS, gaps)

    @_question
    def blame(self, table: str, key: object, *, as_of: When | None = None) -> Found[BlamedColumn]:
        """Return who set each column of a row, in the table's order; for a deleted row, of its last state.

        Raises BadUsage, NotAnswerable.
        """
        require_texts(table=table)
        reader = self._reader(table)
        blamed = blame_of(reader, RowQuestion(table, as_written(key), None, written(as_of)))
        return Found(tuple(blamed.columns), results.BLAMED)

    @_question
    def deleted(self, table: str, *, since: When | None = None, as_of: When | None = None) -> Found[DeletedRow]:
        """Return deleted rows with their last state, newest deletion first; raises BadUsage, NotAnswerable."""
        require_texts(table=table)
        reader = self._reader(table)
        _, rows = deleted_of(reader, table, written(since), written(as_of))
        return Found(tuple(rows), results.DELETED)

    @_question
    def diff(self, before: When, after: When | None = None, *, tables: Iterable[str] = ()) -> Found[RowDifference]:
        """Return the rows that differ between two moments, net, of these tables, all if none is named.

        `after` is now by default. A key change is one row removed and one added.

        Raises BadUsage, and NotAnswerable if a table is not known at both moments.
        """
        reader = self._reader()
        moments = written(before), "now" if after is None else written(after)
        compared = DiffQuestion(*moments, given_names("tables", tables), reverse=False).diffs(reader)
        return Found(tuple(each for table in compared for each in differences(table)), results.DIFFERENCES)

    @_question
    def tables(self) -> Found[TableInfo]:
        """Return the tables of now with their columns, without those that were dropped."""
        reader = self._reader()
        known = reader.known
        listed = []
        for name, table in sorted(known.tables_at(known.now_lsn).items()):
            columns = reader.columns_at(table, known.now_lsn)
            key = tuple(column.name for column in table.key)
            names = tuple(column.name for column in columns)
            reason = known.why_parked(table)
            listed.append(TableInfo(str(name), table.horizon, table.position, names, key, reason))
        return Found(tuple(listed), results.TABLES)

    @_question
    def status(self, source: str | None = None) -> Status:
        """Return positions, lag and tables; with `source`, a connection string, also the health of the slot.

        Raises LakeUnusable.
        """
        require_texts_or_none(source=source)
        return read_status(self._lake, source)

    @_question
    def as_of(self, when: When | None = None) -> "Moment":
        """Return the lake as of a moment; None is the latest transaction; raises BadUsage, NotAnswerable."""
        reader, text = self._reader(), written(when)
        return Moment(reader, reader.moment(text), text)

    @_question
    def sql(self, statement: str, *, as_of: When | None = None, dialect: Dialect = "postgres") -> SqlRows:
        """Return the rows of a statement of `auditlake sql`: its tables as of one moment, with FOR SYSTEM_TIME.

        DuckDB answers; all rows are held in memory. `dialect` is `spark` or `postgres`; settings are not read. In
        PostgreSQL's, a `numeric` without a scale is a text, which `decimal.Decimal` reads.

        Raises BadUsage for a statement that is not understood, or that only Spark answers (`auditlake.sql`), and
        NotAnswerable.
        """
        from auditlake.query.embedded.cells import NotEmbedded  # noqa: PLC0415 - no other question parses SQL
        from auditlake.query.in_duckdb import InDuckDb  # noqa: PLC0415
        from auditlake.query.languages import require_dialect  # noqa: PLC0415
        from auditlake.query.statement import read_state  # noqa: PLC0415

        require_texts(statement=statement, dialect=dialect)
        engine = self._lake.session.part(InDuckDb, partial(InDuckDb, {}))
        named = require_dialect(dialect)
        state = read_state(self._lake, written(as_of), UTC, script=statement)
        query = engine.prepare(state, statement, named)
        try:
            rows = engine.answer(state, query)
            schema, batches = rows.batches()
            found = pa.Table.from_batches(batches, schema)
        except NotEmbedded as reason:
            raise reason.refusal("Ask Spark: auditlake.sql(spark, lake, statement).") from reason
        nulls = (at for at, column in enumerate(found.columns) if column.null_count)
        return SqlRows(found, tuple(engine.notes(state, query, rows, nulls)))

    def changes(  # noqa: PLR0913 - independent filters, all optional
        self,
        since: When | None = None,
        *,
        after: str | None = None,
        tables: Iterable[str] = (),
        key: object = None,
        column: str | None = None,
        ops: Iterable[str] = (),
        follow: bool = True,
        allow_gaps: bool = False,
    ) -> Feed:
        """Yield whole transactions in commit order, as `auditlake.changes` does."""
        require_texts_or_none(after=after, column=column)
        require_flags(follow=follow, allow_gaps=allow_gaps)
        asked = FeedRequest(
            since=written(since),
            after=after,
            tables=given_names("tables", tables),
            key_value=key,
            column=column,
            ops=given_names("ops", ops),
            follow=follow,
            allow_gaps=allow_gaps,
        )
        return asked.open(self._lake)

    def _reader(self, *tables: str) -> Reader:
        """Read the lake; for a question about the named tables alone, if there are any."""
        asked = mentioned(*tables) if tables else ALL
        return Reader(self._lake, datetime.now(UTC), read_known(self._lake, asked=asked, by_commits=True))


class Moment:
    """A lake as of one commit; every table is read at the same LSN."""

    def __init__(self, reader: Reader, lsn: Lsn, when: str | None) -> None:
        self._reader = reader
        self._when = when
        self.lsn = lsn
        """The commit LSN that the moment resolved to."""

    @property
    def _lake(self) -> layout.Lake:
        return self._reader.lake

    def __repr__(self) -> str:
        return f"Moment({str(self.lsn)!r})"

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return sorted(str(name) for name in self._reader.known.tables_at(self.lsn))

    @_question
    def table(  # noqa: PLR0913 - the parts of a question, all optional
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[tuple[str, str, Any]] = (),
        order_by: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
        raw: bool = False,
    ) -> "Rows":
        """Return a table's rows at the moment, in the columns that it had then; nothing is read yet.

        `where` are conditions `(column, op, value)` with `=`, `<>`, `<`, `<=`, `>`, `>=`, `contains`, `begins with`,
        `is null` and `is not null`; a text is read as PostgreSQL reads a value of the column. `order_by` are columns,
        `-name` descending. A column whose equality or order is not known here as PostgreSQL has it, such as a `json`
        or an `inet`, has no such condition or order. A value that its Arrow type cannot represent is NULL; a `char(n)`
        is without trailing blanks. `raw` adds the column `_raw` with the exact text of such values.

        Raises BadUsage, NotAnswerable.
        """
        require_texts(name=name)
        require_count("limit", limit)
        require_count("offset", offset)
        require_flags(raw=raw)
        chosen = None if columns is None else given_names("columns", columns)
        table = self._reader.table_at(name, self.lsn)
        self._reader.check(table, self.lsn, self._when)
        page = Page(given_names("order_by", order_by), limit, offset)
        return Rows(self._reader, table, self.lsn, chosen, given_conditions(where), page, raw)

    @_question
    def to_duckdb(self) -> "DuckDBPyConnection":
        """Return a DuckDB connection with a view of every table, `schema.table`, to query with its SQL.

        A table that the lake does not know at the moment has no view. DuckDB does not tell `Name` from `name`, and has
        names of its own: views and their columns are called as in `auditlake views` (docs/asking.md), `Orders@16455`,
        `temp_.orders`, `~4eame`. DuckDB's SQL is not PostgreSQL's: `auditlake sql` and `auditlake.sql` are the
        reference.
        """
        connection = open_duckdb()
        present = self._reader.known.tables_at(self.lsn)
        known = {name: table for name, table in present.items() if self._is_known(table)}
        for name, table in names_of_views(known, plain=False).items():
            columns = columns_of(self._reader, table, self.lsn)
            names = shown_in_state(columns, raw=False)
            inner = state_query(connection, self._reader, StateRequest(table, self.lsn, columns)).sql
            cells = (f"{bare(each, quoted(each))} as {standard_identifier(names[each.stored])}" for each in columns)
            shown = ", ".join(cells)
            schema = standard_identifier(name.schema)
            connection.execute(f"create schema if not exists {schema}")
            view = f"{schema}.{standard_identifier(name.table)}"
            connection.execute(f"create view {view} as select {shown or 'null'} from ({inner})")
        return connection

    def _is_known(self, table: HistoryTable) -> bool:
        try:
            self._reader.check(table, self.lsn, self._when)
        except NotAnswerable:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Rows(Exportable):
    """Rows of one table as of a moment; each conversion reads them."""

    _reader: Reader
    _table: HistoryTable
    _lsn: Lsn
    _columns: tuple[str, ...] | None
    _where: tuple[Condition, ...]
    _page: Page
    _raw: bool

    def __repr__(self) -> str:
        return f"Rows({str(self._table.name)!r}, {str(self._lsn)!r})"

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches, for tables that do not fit into memory.

        Raises BadUsage if `raw` would add a second column of that name.
        """
        if self._raw and _RAW in self._names:
            raise BadUsage(f"{self._table.label} has a column {_RAW} of its own", "Use texts(), or choose columns.")
        return self._opened(raw=self._raw, printed=False)

    @property
    def _names(self) -> Sequence[str]:
        if self._columns is not None:
            return self._columns
        return [column.name for column in columns_of(self._reader, self._table, self._lsn)]

    def _opened(self, *, raw: bool, printed: bool) -> pa.RecordBatchReader:
        with _damage_named(self._reader.lake):
            opened = open_state(
                self._reader,
                self._table,
                self._lsn,
                columns=self._columns,
                where=self._where,
                page=self._page,
                raw=raw,
                printed=printed,
            )
        return pa.RecordBatchReader.from_batches(opened.schema, self._read(opened))

    def _read(self, opened: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with _damage_named(self._reader.lake):
            yield from opened

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.batches().read_all()

    def _for_duckdb(self) -> pa.Table:
        columns = columns_of(self._reader, self._table, self._lsn)
        shown = shown_in_state(columns, raw=self._raw)
        names, rows = {column.name: shown[column.stored] for column in columns}, self.to_arrow()
        return rows.rename_columns([names.get(name, name) for name in rows.column_names])

    def count(self) -> int:
        """Return the number of rows, without reading their values.

        There is no `len()`: `list(rows)` would call it first, and read the table twice.
        """
        return sum(batch.num_rows for batch in replace(self, _columns=(), _raw=False).batches())

    def _first(self, rows: int) -> tuple[pa.Table, int | None]:
        limit = rows + 1 if self._page.limit is None else min(self._page.limit, rows + 1)
        found = replace(self, _page=replace(self._page, limit=limit)).to_arrow()
        return found.slice(0, rows), found.num_rows if found.num_rows <= rows else None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dictionary."""
        for batch in self.batches():
            yield from batch.to_pylist()

    def texts(self) -> Iterator[dict[str, str | None]]:
        """Yield each row with PostgreSQL's own text of every value."""
        columns = {column.name: column for column in columns_of(self._reader, self._table, self._lsn)}
        for batch in self._opened(raw=True, printed=True):
            *names, _ = batch.schema.names
            *values, raws = batch.columns  # a column of the source may have the name of the last one
            texts = [stored_texts(columns[name], each, raws) for name, each in zip(names, values, strict=True)]
            yield from pa.table(texts, names).to_pylist() if texts else ({} for _ in range(batch.num_rows))
