"""Models of the JSON API: what every endpoint returns, and the OpenAPI document describes.

Values of rows are PostgreSQL's own text, or null. LSNs are in PostgreSQL's notation, times ISO 8601 in UTC.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all models."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Values = dict[str, str | None]


class Problem(Model):
    """An error, with its remedy, and the exit code of the command that asks the same."""

    error: str
    hint: str | None = None
    code: int


class Moment(Model):
    """A moment: an LSN, the time of the last commit up to it, and how many commits of the lake are up to it."""

    lsn: str
    time: str | None
    commit: int
    commits: int
    is_now: bool


class Bar(Model):
    """Commits in a part of a period; `lsn` is the last commit up to its end."""

    from_us: int
    to_us: int
    commits: int
    lsn: str | None


class Stretch(Model):
    """A stretch in which changes of a table, of all if it is null, are unknown; without an end, it is parked.

    Times are in microseconds since 1970; null if it began before the first commit.
    """

    table: str | None
    lsn: str
    to_lsn: str | None
    from_us: int | None
    to_us: int | None
    reason: str


class Timeline(Model):
    """Density of commits in a period; times in microseconds since 1970. `first_us` and `last_us` are the lake's.

    `unknown` has the first of `unknown_count` stretches.
    """

    first_us: int | None
    last_us: int | None
    from_us: int
    to_us: int
    commits: int
    bars: list[Bar]
    unknown: list[Stretch]
    unknown_count: int


class Commit(Model):
    """One commit: its number from 1, LSN and time.

    The number 0 is the beginning of the lake, before the first commit: it has that one's `time_us`, and no time.
    """

    number: int
    lsn: str
    time: str | None
    time_us: int


class Column(Model):
    """A column at a moment: its type as SQL has it, and the operations of filters on it."""

    name: str
    type: str
    key: bool
    numeric: bool
    ops: list[str]


class TableSummary(Model):
    """A table at a moment; `problem` is why it cannot be answered, `rows` null then."""

    table: str
    rows: int | None
    columns: int | None
    problem: str | None
    hint: str | None
    parked: str | None


class Tables(Model):
    """The tables of the lake at a moment. At most `limit` of them; `total` is their number."""

    at: Moment
    total: int
    tables: list[TableSummary]


class Row(Model):
    """A row: its values in the order of the columns, and its key; null in a table without one."""

    values: list[str | None]
    key: list[str] | None


class Rows(Model):
    """A page of the rows of a table; `count` is the number of rows that the filters take.

    `cut`: there are fewer than `limit`, because these have enough characters; the next page begins after them.
    """

    at: Moment
    table: str
    columns: list[Column]
    rows: list[Row]
    count: int
    offset: int
    limit: int
    where: list[str]
    sort: str | None
    cut: bool


class Neighbour(Model):
    """The key of the row before or after another; null if there is none."""

    at: Moment
    table: str
    key: list[str] | None


class Facet(Model):
    """A value of a column and the number of rows that have it."""

    value: str | None
    rows: int


class Facets(Model):
    """The most frequent values of a column; `values` is null if it has more than 10,000."""

    at: Moment
    table: str
    column: str
    distinct: int | None
    values: list[Facet] | None


class Transaction(Model):
    """A transaction: when, who, why, which tables, how many changes.

    The counts are null if the transaction changed tables that the user may not see, too; these are not in `tables`.
    """

    lsn: str
    xid: int
    time: str
    actor: str | None
    reason: str | None
    db_user: str | None
    origin: str | None
    tables: list[str]
    inserts: int | None
    updates: int | None
    deletes: int | None
    truncates: int | None


class Log(Model):
    """Transactions, newest first; `before` is the LSN to ask for the next page with, null on the last."""

    at: Moment
    transactions: list[Transaction]
    before: str | None


class ChangedValue(Model):
    """A column before and after; a side without a row is absent."""

    column: str
    old: str | None = None
    new: str | None = None
    has_old: bool
    has_new: bool


class Change(Model):
    """One change of a transaction, or a logical message of it; in order of `ordinal`."""

    ordinal: int
    kind: Literal["insert", "update", "delete", "truncate", "message"]
    table: str | None = None
    key: list[str] | None = None
    key_before: list[str] | None = None
    values: list[ChangedValue] = []
    unchanged: int = 0
    rows: int | None = None
    prefix: str | None = None
    content: str | None = None


class Neighbours(Model):
    """The transactions before and after, by table, actor or row; null if there is none."""

    by: str
    before: str | None
    after: str | None


class TransactionDetail(Model):
    """A transaction with its changes; `more` if there are others than the first `limit`, or than have room."""

    at: Moment
    transaction: Transaction
    app: object | None
    db: object | None
    neighbours: list[Neighbours]
    changes: list[Change]
    more: bool


class Event(Model):
    """One event in the life of a row."""

    lsn: str
    time: str
    op: str
    xid: int | None
    actor: str | None
    reason: str | None
    key: list[str]
    key_before: list[str] | None
    values: list[ChangedValue]
    row: Values | None


class Gap(Model):
    """A range of LSNs in which changes of the table are unknown; without an end, it is parked from there on."""

    lsn: str
    to_lsn: str | None
    reason: str


class RowDifference(Model):
    """A row at another moment, `before`, and at the moment of the answer: whether it exists, and what differs."""

    before: Moment
    existed: bool
    exists: bool
    values: list[ChangedValue]
    unchanged: int


class Blame(Model):
    """A column, its value, and the commit that set it; `lsn` null: before capture."""

    column: str
    value: str | None
    lsn: str | None
    time: str | None
    actor: str | None
    reason: str | None


class RowHistory(Model):
    """The life of a row up to a moment, newest event first; `exists` at that moment.

    `difference` is from the moment `versus`, if that was asked.

    `before`: events are left out, because these have enough characters; ask as of this LSN for them.
    """

    at: Moment
    table: str
    key_columns: list[str]
    key: list[str]
    exists: bool
    events: list[Event]
    gaps: list[Gap]
    blame: list[Blame]
    before: str | None
    difference: RowDifference | None


class Found(Model):
    """A row that some version matches: the version's period, the columns that matched, and the row's state now."""

    key: list[str] | None
    state: Literal["exists", "deleted"]
    columns: list[str]
    values: list[str | None]
    from_lsn: str
    from_time: str | None
    to_lsn: str | None
    to_time: str | None
    versions: int


class Finds(Model):
    """Rows with a version that has the value in some column, those that do not exist any more first."""

    at: Moment
    table: str
    columns: list[Column]
    found: list[Found]
    more: bool


class TableDiff(Model):
    """Net difference of a table between two moments; `begins` if its history begins between them, so it is new."""

    table: str
    begins: str | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    added: int = 0
    removed: int = 0
    modified: int = 0
    schema_changes: list[str] = []
    problem: str | None = None
    entries: list["Entry"] = []
    more: bool = False


class Entry(Model):
    """One row that differs."""

    kind: Literal["added", "removed", "modified"]
    key: list[str] | None
    values: list[ChangedValue]


class Comparison(Model):
    """Two moments compared."""

    before: Moment
    after: Moment
    tables: list[TableDiff]


class Chart(Model):
    """A series over time."""

    name: str
    unit: str
    times_us: list[int]
    values: list[float | None]


class StatusReport(Model):
    """Verdict, positions and lag: `status` has the fields of `auditlake status --json`."""

    at: Moment
    code: int
    verdict: str
    remedy: str | None
    status: dict[str, object]
    charts: list[Chart]
    sizes: list["TableSize"]


class TableSize(Model):
    """Size of a history on disk: live files, their bytes, versions of rows; the table has its last name."""

    table: str
    history: str
    files: int
    bytes: int
    versions: int | None


class SqlColumn(Model):
    """A column of an answer."""

    name: str
    type: str
    numeric: bool


class Answer(Model):
    """Rows of a statement: values as text; `more` if there are others. `tables` are those that it reads."""

    at: Moment
    engine: str
    seconds: float
    columns: list[SqlColumn]
    rows: list[list[str | None]]
    more: bool
    tables: list[str]


class Completion(Model):
    """A completion, and how many characters before the cursor it replaces."""

    text: str
    replaces: int


class Completions(Model):
    """Completions of the end of a statement."""

    completions: list[Completion]


class LakeInfo(Model):
    """The lake."""

    at: Moment
    database: str
    version: str
    tables: list[str]
    horizon: str
