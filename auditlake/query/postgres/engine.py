"""DuckDB for statements in PostgreSQL's dialect: views of what they read, the functions they need, and their rows.

A value that its typed column cannot hold (`NaN`, `infinity`) would be NULL in the view, so that reading it is an error
that names the column. An expression that fails on a row fails as in PostgreSQL: BadUsage, without the value.

DuckDB calls a function in Python 2,048 times before it looks whether the statement was interrupted, in any of its
threads. So a statement passes the number of its work, and each call looks whether that was cancelled, before it begins
and in each loop that may be long (`cancellation.cancellable_loop`).
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import DecimalException
from functools import wraps
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.cancellation import begin_call, work_number
from auditlake.errors import BadUsage, NotAnswerable, TableUnreadable, Unsupported
from auditlake.lake.duckdb_rows import raw_entry
from auditlake.lake.history import type_of
from auditlake.messages import say
from auditlake.query.duckdb_views import (
    HELD_BYTES,
    HELD_ROWS,
    RowsOfDuckDb,
    StatementDatabase,
    ViewColumn,
    cell_of,
    closing,
    create_view,
    duckdb_error,
    interruptible,
    rows_of_view,
)
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import NAME, Embedded
from auditlake.query.postgres import (
    arrays,
    documents,
    floats,
    formats,
    identifiers,
    json_texts,
    numbers,
    patterns,
    powers,
    texts,
)
from auditlake.query.postgres.arithmetic import MIXED
from auditlake.query.postgres.cells import Cell
from auditlake.query.postgres.conversions import FAILED, NOT_READ, of_parts, parts_of
from auditlake.query.postgres.growth import LONGEST, bytes_of_array, may_be_long
from auditlake.query.postgres.scopes import Query
from auditlake.query.postgres.set_returning import BOTH_WAYS
from auditlake.query.postgres.statement import IN_SPARK, PostgresQuery, TypedColumn
from auditlake.query.postgres.types import INTERVAL, JSONB, TEXT, Type
from auditlake.query.statement import LSN, Answer, AnswerRows, LakeState, Log, PreparedQuery
from auditlake.query.years import NO_YEAR, no_year, require_years
from auditlake.relation import TableName
from auditlake.sql_names import standard_literal
from auditlake.values.exact_text import RAW, array_text, arrow_of, double_text, real_text
from auditlake.values.jsonb import TOO_DEEP
from auditlake.values.numeric_text import Failed, TooManyDigits

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_SHORT_ROW = 16 << 10
"""Longer rows may have `HELD_BYTES` together: DuckDB's limit does not count the copies that it hands out."""
_PADDED = 16 << 20
"""Characters of `char(n)` that are padded at once."""
_INEXACT = "not held: "
_NOT_FINITE = "not a finite number\n"
_UNSETTLED = "the last digit is not certain\n"
_ENDS_IN_ESCAPE = "the pattern ends in its escape\n"
_TOO_MANY_DIGITS = "too many digits\n"
_OF_LOCALE = "words end where the locale says\n"
_LONG = "rows that are held at once are too long\n"

_MARKS: Mapping[type[Exception], str] = {
    numbers.NotFinite: _NOT_FINITE,
    texts.NotRead: NOT_READ,
    texts.OfLocale: _OF_LOCALE,
    powers.Unsettled: _UNSETTLED,
    patterns.EndsInEscape: _ENDS_IN_ESCAPE,
    TooManyDigits: _TOO_MANY_DIGITS,
}

_TEXT, _WHOLE, _TRUTH, _DOUBLE, _TIMESTAMP = "varchar", "integer", "boolean", "double", "timestamp"
_TEXTS, _BYTES, _PARTS = "varchar[]", "blob", "bigint[]"
_NUMBER = "bigint"
_CALL = re.compile(r"""'[^']*'|"[^"]*"|\b(pg_\w+)\(""")
"""A call, or what is quoted, which is none: a doubled quote is the end of one and the begin of another."""
_FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...], str]] = {
    "pg_add": (numbers.add, (_TEXT, _TEXT), _TEXT),
    "pg_subtract": (numbers.subtract, (_TEXT, _TEXT), _TEXT),
    "pg_multiply": (numbers.multiply, (_TEXT, _TEXT), _TEXT),
    "pg_divide": (numbers.divide, (_TEXT, _TEXT), _TEXT),
    "pg_sqrt": (numbers.root, (_TEXT,), _TEXT),
    "pg_remainder": (numbers.remainder, (_TEXT, _TEXT), _TEXT),
    "pg_compare": (numbers.compare, (_TEXT, _TEXT), _WHOLE),
    "pg_greatest": (numbers.greatest, (_TEXTS,), _TEXT),
    "pg_least": (numbers.least, (_TEXTS,), _TEXT),
    "pg_round": (numbers.rounded, (_TEXT, _WHOLE), _TEXT),
    "pg_number_text": (formats.number_text, (_TEXT, _TEXT), _TEXT),
    "pg_trunc": (numbers.truncated, (_TEXT, _WHOLE), _TEXT),
    "pg_floor": (numbers.floored, (_TEXT,), _TEXT),
    "pg_ceil": (numbers.raised, (_TEXT,), _TEXT),
    "pg_negate": (numbers.opposite, (_TEXT,), _TEXT),
    "pg_abs": (numbers.absolute, (_TEXT,), _TEXT),
    "pg_whole": (numbers.whole_text, (_TEXT,), _TEXT),
    "pg_numeric": (numbers.numeric, (_TEXT,), _TEXT),
    "pg_sort_key": (numbers.number_key, (_TEXT,), _TEXT),
    "pg_total": (numbers.total, (_TEXT,), _TEXT),
    "pg_variance": (numbers.variance, (_TEXT, _WHOLE), _TEXT),
    "pg_deviation": (numbers.deviation, (_TEXT, _WHOLE), _TEXT),
    "pg_of_double": (numbers.of_double, (_DOUBLE,), _TEXT),
    "pg_of_real": (numbers.of_real, ("float",), _TEXT),
    "pg_float8_text": (double_text, (_DOUBLE,), _TEXT),
    "pg_float4_text": (real_text, ("float",), _TEXT),
    "pg_like": (patterns.regular, (_TEXT, _TEXT), _TEXT),
    **{f"pg_{name}": (function, (_DOUBLE,), _TEXT) for name, function in floats.ONE_ARGUMENT.items()},
    "pg_power": (floats.power, (_DOUBLE, _DOUBLE), _TEXT),
    "pg_atan2": (floats.angle, (_DOUBLE, _DOUBLE), _TEXT),
    "pg_exp_of": (powers.exp_of, (_TEXT,), _TEXT),
    "pg_ln_of": (powers.ln_of, (_TEXT,), _TEXT),
    "pg_log_of": (powers.log10, (_TEXT,), _TEXT),
    "pg_log_to": (powers.log_to, (_TEXT, _TEXT), _TEXT),
    "pg_power_of": (powers.power_of, (_TEXT, _TEXT), _TEXT),
    "pg_quotient": (numbers.quotient, (_TEXT, _TEXT), _TEXT),
    "pg_trim_scale": (numbers.without_zeros, (_TEXT,), _TEXT),
    "pg_bucket": (numbers.bucket, (_TEXT, _TEXT, _TEXT, _WHOLE), _WHOLE),
    "pg_reverse": (texts.reversed_text, (_TEXT,), _TEXT),
    "pg_array_text": (array_text, (_TEXTS,), _TEXT),
    "pg_character": (texts.character, (_WHOLE,), _TEXT),
    "pg_translate": (texts.translated, (_TEXT, _TEXT, _TEXT), _TEXT),
    "pg_overlay": (texts.with_overlay, (_TEXT, _TEXT, _WHOLE, _WHOLE), _TEXT),
    "pg_hex": (texts.hex_text, ("bigint",), _TEXT),
    "pg_encode": (texts.encoded, (_BYTES, _TEXT), _TEXT),
    "pg_decode": (texts.decoded, (_TEXT, _TEXT), _BYTES),
    "pg_interval": (texts.interval_parts, (_TEXT,), _PARTS),
    "pg_read_time": (texts.read_time, (_TEXT, _TEXT), _TIMESTAMP),
    "pg_json_equal": (documents.equal, (_TEXT, _TEXT), _TRUTH),
    "pg_initcap": (texts.initcap, (_TEXT,), _TEXT),
    "pg_quoted": (texts.literal_text, (_TEXT,), _TEXT),
    "pg_quoted_name": (identifiers.quoted_name, (_TEXT,), _TEXT),
    "pg_format": (texts.format_text, (_TEXT, _TEXTS), _TEXT),
    "pg_times": (texts.times, (_PARTS, _DOUBLE), _PARTS),
    "pg_over": (texts.over, (_PARTS, _DOUBLE), _PARTS),
    "pg_of_zone": (texts.of_zone, (_TIMESTAMP, _TEXT), _TIMESTAMP),
    "pg_split": (texts.split_text, (_TEXT, _TEXT, _TEXT), _TEXTS),
    "pg_of_utf8": (texts.of_utf8, (_BYTES,), _TEXT),
    "pg_of_epoch": (texts.of_epoch, (_DOUBLE,), _TIMESTAMP),
    "pg_at_zone": (texts.at_zone, (_TIMESTAMP, _TEXT), _TIMESTAMP),
    "pg_raw_member": (json_texts.member, (_TEXT, _TEXT), _TEXT),
    "pg_raw_member_text": (json_texts.member_text, (_TEXT, _TEXT), _TEXT),
    "pg_raw_element": (json_texts.element, (_TEXT, _WHOLE), _TEXT),
    "pg_raw_element_text": (json_texts.element_text, (_TEXT, _WHOLE), _TEXT),
    "pg_raw_at_path": (json_texts.at_path, (_TEXT, _TEXTS), _TEXT),
    "pg_raw_at_path_text": (json_texts.at_path_text, (_TEXT, _TEXTS), _TEXT),
    "pg_member": (documents.member, (_TEXT, _TEXT), _TEXT),
    "pg_member_text": (documents.member_text, (_TEXT, _TEXT), _TEXT),
    "pg_element": (documents.element, (_TEXT, _WHOLE), _TEXT),
    "pg_element_text": (documents.element_text, (_TEXT, _WHOLE), _TEXT),
    "pg_at_path": (documents.at_path, (_TEXT, _TEXTS), _TEXT),
    "pg_at_path_text": (documents.at_path_text, (_TEXT, _TEXTS), _TEXT),
    "pg_has_any": (documents.has_any, (_TEXT, _TEXTS), _TRUTH),
    "pg_has_all": (documents.has_all, (_TEXT, _TEXTS), _TRUTH),
    "pg_contains": (documents.contains, (_TEXT, _TEXT), _TRUTH),
    "pg_merged": (documents.merged, (_TEXT, _TEXT), _TEXT),
    "pg_without": (documents.without_keys, (_TEXT, _TEXTS), _TEXT),
    "pg_without_element": (documents.without_element, (_TEXT, _WHOLE), _TEXT),
    "pg_without_path": (documents.without_path, (_TEXT, _TEXTS), _TEXT),
    "pg_without_nulls": (documents.without_nulls, (_TEXT,), _TEXT),
    "pg_json_elements": (documents.elements, (_TEXT,), _TEXTS),
    "pg_json_element_texts": (documents.element_texts, (_TEXT,), _TEXTS),
    "pg_json_keys": (documents.keys, (_TEXT,), _TEXTS),
    "pg_json_members": (documents.members, (_TEXT,), _TEXTS),
    "pg_json_member_texts": (documents.member_texts, (_TEXT,), _TEXTS),
    "pg_json_string": (documents.string, (_TEXT,), _TEXT),
    "pg_array_contains": (arrays.array_contains, (_TEXTS, _TEXTS), _TRUTH),
    "pg_array_overlaps": (arrays.overlaps, (_TEXTS, _TEXTS), _TRUTH),
    "pg_json": (documents.checked, (_TEXT,), _TEXT),
    "pg_jsonb": (documents.canonical, (_TEXT,), _TEXT),
    "pg_json_number": (documents.number_of, (_TEXT,), _TEXT),
    "pg_json_truth": (documents.truth, (_TEXT,), _TRUTH),
    "pg_json_kind": (documents.kind, (_TEXT,), _TEXT),
    "pg_json_length": (documents.length, (_TEXT,), _WHOLE),
}
_OF_GROUPS = frozenset({"pg_total", "pg_variance", "pg_deviation"})
"""They read the numbers of a text one by one."""
_MAY_BE_NULL = frozenset(
    {
        *(name for name in _FUNCTIONS if name.startswith("pg_raw_")),
        *("pg_variance", "pg_deviation", "pg_member", "pg_member_text", "pg_element", "pg_element_text"),
        *("pg_greatest", "pg_least", "pg_at_path", "pg_at_path_text", "pg_json_number", "pg_json_truth"),
    }
)
_MAY_FAIL = frozenset(
    name
    for name, (function, _, _) in _FUNCTIONS.items()
    if function.__module__ in {each.__name__ for each in (numbers, powers, texts, floats, json_texts)}
)
_MAY_FAIL |= {
    *("pg_json", "pg_jsonb", "pg_json_number", "pg_json_truth"),
    *("pg_merged", "pg_without", "pg_without_element", "pg_without_path"),
    *("pg_json_elements", "pg_json_element_texts", "pg_json_keys", "pg_json_members", "pg_json_member_texts"),
    *("pg_json_length", "pg_number_text", "pg_like"),
}
_INTERVAL_TEXT = "pg_interval_text"


@dataclass(frozen=True, slots=True)
class PostgresRows(RowsOfDuckDb):
    """The rows of a statement, with the names of their columns' types in PostgreSQL."""

    types: Sequence[str]


def _schema(cells: Sequence[Cell]) -> pa.Schema:
    return pa.schema(
        [pa.field(cell.name, _arrow(cell), metadata={LSN: b"1"} if cell.is_lsn else None) for cell in cells]
    )


def _arrow(cell: Cell) -> pa.DataType:
    return arrow_of(RAW if cell.type.name == "map" else cell.type.column_kind)


class PostgresEngines:
    """DuckDB over one lake for statements in PostgreSQL's dialect; has the interface of `engine_choice.Engines`."""

    def __init__(self, database: StatementDatabase | None = None) -> None:
        self._database = database or StatementDatabase()
        self._said = False

    def answer(self, state: LakeState, queries: Sequence[PreparedQuery]) -> list[Answer]:
        """Run a script, also DESCRIBE and SHOW TABLES; raises BadUsage if a row fails, NotAnswerable."""
        return [Answer(self._rows(state, query), lambda _: iter(())) for query in queries]

    def _rows(self, state: LakeState, query: PreparedQuery) -> AnswerRows:
        if isinstance(query, PostgresQuery):
            return self.rows(state, query)
        try:
            return Embedded({}, self._database).answer(state, query)
        except NotEmbedded as reason:
            raise BadUsage(f"{reason} is not described in this dialect", IN_SPARK) from reason

    def rows(self, state: LakeState, query: PostgresQuery) -> PostgresRows:
        """Run a statement; raises as `answer` does."""
        connection = self._database.cursor(state, register_functions)
        cells = query.translated.columns
        try:
            with _reported():
                _create_views(connection, state, query)
                batches = connection.execute(_numbered(_as_shown(query.translated))).to_arrow_reader(HELD_ROWS)
                first = list(islice(batches, 1))
        except BaseException:
            documents.clear_read()
            connection.close()
            raise
        schema = _schema(cells)
        parts = chain.from_iterable(_padded_at_once(batch, cells) for batch in chain(first, _rest(batches)))
        fetched = _forgetting(_shown(part, cells, schema) for part in parts)
        types = [TEXT.shown if cell.is_unknown else cell.type.shown for cell in cells]
        return PostgresRows(schema, closing(connection, fetched), types)

    def report(self) -> None:
        """Report on stderr which engine answered, once."""
        if not self._said:
            say(f"answered by {NAME}, in PostgreSQL's dialect")
        self._said = True


def register_functions(connection: "DuckDBPyConnection") -> None:
    """Register the functions that translated statements call."""
    from duckdb.func import ARROW, FunctionNullHandling  # noqa: PLC0415 - it takes a tenth of a second to import

    for name, (function, takes, gives) in _FUNCTIONS.items():
        is_list = gives == _TEXTS
        nulls = FunctionNullHandling.SPECIAL if name in _MAY_BE_NULL else FunctionNullHandling.DEFAULT
        guarded = _guarded(_as_json(function) if is_list else function, may_be_long=name in _OF_GROUPS)
        # DuckDB would call a pure function with all values of a dictionary, also with those that WHERE leaves out.
        connection.create_function(
            f"{name}_json" if is_list else name,
            guarded,
            [_NUMBER, *takes],
            _TEXT if is_list else gives,
            null_handling=nulls,
            side_effects=name in _MAY_FAIL,
        )
        if is_list:
            given = ", ".join(f"x{place}" for place in range(len(takes) + 1))
            made = f"from_json({name}_json({given}), '[\"varchar\"]')"
            connection.execute(f"create or replace macro {name}({given}) as {made}")
    connection.create_function(
        "pg_interval_parts", _guarded(texts.interval_text), [_NUMBER, "integer", "integer", "bigint"], _TEXT
    )
    connection.create_function("pg_long_rows", _long_rows, [_NUMBER], _NUMBER, type=ARROW, side_effects=True)
    months, days, micros = parts_of("x")
    for name, result in (
        (_INTERVAL_TEXT, f"pg_interval_parts(0, cast({months} as integer), cast({days} as integer), {micros})"),
        ("pg_parts", f"[{months}, {days}, {micros}]"),
        ("pg_of_parts", of_parts("x[1]", "x[2]", "x[3]")),
    ):  # the argument is computed once, however often its value is needed: calls are in calls
        once = f"list_transform([given], lambda x: case when x is not null then {result} end)[1]"
        connection.execute(f"create or replace macro {name}(given) as {once}")


def _as_json(function: Callable[..., Sequence[str | None]]) -> Callable[..., str]:
    """Return a list as text: of a list from Python, DuckDB looks for pandas at each element, which takes it 20 us."""

    @wraps(function)
    def called(*given: Any) -> str:  # noqa: ANN401 - values of DuckDB
        return json.dumps(function(*given), ensure_ascii=False)

    return called


def _guarded(function: Callable[..., Any], *, may_be_long: bool = False) -> Callable[..., Any]:
    """Mark the message of an expected failure, so that it is told from a bug; NULL gives NULL.

    The first argument is the number of a statement's work.
    """
    longest = sys.maxsize if may_be_long else LONGEST

    def called(number: int, *given: Any) -> Any:  # noqa: ANN401 - values of DuckDB
        begin_call(number)
        if None in given:
            return None
        _require_short(given, longest)
        try:
            return function(*given)
        except tuple(_MARKS) as exc:
            raise ValueError(_MARKS[type(exc)]) from None
        except Failed as exc:
            raise ValueError(f"{FAILED}{exc}\n") from None
        except RecursionError:
            raise ValueError(f"{FAILED}{TOO_DEEP}\n") from None
        except DecimalException:
            raise ValueError(_TOO_MANY_DIGITS) from None

    taken = inspect.signature(function).parameters.values()
    first = inspect.Parameter("number", inspect.Parameter.POSITIONAL_ONLY)
    vars(called)["__signature__"] = inspect.Signature([first, *taken])  # DuckDB counts its parameters
    return called


def _long_rows(sizes: pa.Array) -> Any:  # noqa: ANN401 - the class is not in DuckDB's types
    """Return the sizes of the long rows of a batch; it fails if they are too long together, but not for one row."""
    if len(sizes) > 1 and pc.sum(sizes).as_py() > HELD_BYTES:
        raise ValueError(_LONG)
    return sizes


def _numbered(sql: str) -> str:
    """Return a statement whose calls of our functions have the number of this thread's work."""
    number = work_number()
    return _CALL.sub(lambda found: f"{found[1]}({number}, " if found[1] in _FUNCTIONS else found[0], sql)


def _forgetting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    finally:
        documents.clear_read()


def _require_short(given: Iterable[Any], longest: int) -> None:
    if any(isinstance(each, str | bytes) and len(each) > longest for each in given):
        raise ValueError(f"{FAILED}a function here takes texts of at most {longest:,} characters\n")


def _create_views(connection: "DuckDBPyConnection", state: LakeState, query: PostgresQuery) -> None:
    for view, read in query.views.items():
        columns, is_log = query.columns[view], isinstance(read[1], Log)
        every = [each.shown for each in columns]
        own = [each.column for each in every if each.column is not None]
        rows = rows_of_view(connection, state, query, read, JSONB.name, own)
        values = [
            _logged(f"c{n}", each) if is_log else _value(each, every, read[0], has_texts=rows.has_texts)
            for n, each in enumerate(columns)
        ]
        pairs = enumerate(zip(values, columns, strict=True))
        cells = [_utc(v, each.type, n) for n, (v, each) in pairs if not each.shown.masked]
        create_view(connection, view, [*map(_numbered, cells)], rows.sql)


def _as_shown(query: Query) -> str:
    """Return a query with the texts of its intervals, and with the size of its long rows as its last column.

    Intervals of Arrow count nanoseconds, and long ones overflow.
    """
    cells = [(f"o{n}", cell) for n, cell in enumerate(query.columns)]
    sizes = [_bytes_of(name, cell) for name, cell in cells if may_be_long(cell) and cell.type.name != "map"]
    if not sizes and all(cell.type != INTERVAL for _, cell in cells):
        return query.sql
    shown = [f"{_INTERVAL_TEXT}({name}) as {name}" if cell.type == INTERVAL else name for name, cell in cells]
    if sizes:
        shown.append(f"case when {(size := ' + '.join(sizes))} > {_SHORT_ROW} then pg_long_rows({size}) end as size")
    return f"select {', '.join(shown)} from ({query.sql})"


def _bytes_of(name: str, cell: Cell) -> str:
    if cell.type.element is not None:
        return f"coalesce(cast({bytes_of_array(name, cell.type)} as bigint), 0)"
    measured = f"octet_length({name})" if cell.type.name == "bytea" else f"strlen(cast({name} as varchar))"
    return f"coalesce({measured}, 0)"


def _value(typed: TypedColumn, columns: Sequence[ViewColumn], table: TableName, *, has_texts: bool) -> str:
    """Return a column of a view; reading a value that only its text holds is an error, with `has_texts` in `_raw`."""
    shown, value = typed.shown, cell_of(typed.shown, columns)
    kind, failure = typed.type.element or typed.type, f"error({standard_literal(f'{_INEXACT}{table}.{shown.name}')})"
    if kind.is_decimal or kind.is_integer:  # a history's column may have fewer digits than the source's has since
        value = f"cast({value} as {typed.type.duckdb})"
    if kind == INTERVAL:
        return f"case when ends_with({value}, 'infinity') then {failure} else pg_of_parts(pg_interval({value})) end"
    if not has_texts or shown.column is None or not type_of(shown.column).may_not_fit:
        return value
    return f"case when {raw_entry(shown.column)} is not null then {failure} else {value} end"


def _logged(value: str, typed: TypedColumn) -> str:
    """Return a column of a log: one of structs is a jsonb."""
    return f"pg_jsonb(cast(to_json({value}) as varchar))" if typed.type == JSONB else value


def _utc(value: str, kind: Type, n: int) -> str:
    return f"cast({value} as {kind.duckdb}) as c{n}" if kind.name.startswith("timestamptz") else f"{value} as c{n}"


def _shown(batch: pa.RecordBatch, cells: Sequence[Cell], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as they are shown: times with a zone, padded characters, texts of intervals."""
    columns = [_column(column, cell) for column, cell in zip(batch.columns[: len(cells)], cells, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _padded_at_once(batch: pa.RecordBatch, cells: Sequence[Cell]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in parts that are short when padded; raises NotAnswerable if one row is too long."""
    width = sum(map(_blanks, cells))
    if width > HELD_BYTES:
        raise NotAnswerable(f"a row has {width:,} characters of char(n)", "Ask for fewer columns.")
    rows = max(1, _PADDED // max(1, width))
    yield from (batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows))


def _blanks(cell: Cell) -> int:
    """Return the length to which values are padded, 0 if they are not."""
    return 0 if cell.type.name == "varchar" else cell.type.length or 0


def _column(values: pa.Array, cell: Cell) -> pa.Array:
    require_years(values)
    kind = _arrow(cell)  # DuckDB gives a column of NULLs from a function the type of an integer
    found = pa.nulls(len(values), kind) if values.null_count == len(values) else values.cast(kind)
    return pc.utf8_rpad(found, blanks, " ") if (blanks := _blanks(cell)) else found


def _rest(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _reported():
        yield from batches


@contextmanager
def _reported() -> Iterator[None]:
    """Turn DuckDB's errors into ours."""
    try:
        with interruptible():
            yield
    except (NotEmbedded, Unsupported) as exc:
        raise NotAnswerable(f"{exc} is not read in this dialect", IN_SPARK) from exc
    except duckdb_error() as exc:
        raise _ours(exc) from None
    except (pa.ArrowException, OSError) as exc:
        raise TableUnreadable(f"DuckDB cannot read the rows: {type(exc).__name__}", "Run auditlake verify.") from exc


def _ours(exc: BaseException) -> BadUsage | NotAnswerable:
    """Return the error of a statement for one of DuckDB's; its text may have values, so only what is ours is kept."""
    text, kind = str(exc), type(exc).__name__
    if kind == "InvalidInputException" and (found := _marked(text)) is not None:
        return found
    if (
        kind in {"BinderException", "NotImplementedException"}
        and (found := _of_form(text.partition("\n")[0])) is not None
    ):
        return found
    if kind == "OutOfMemoryException":
        hint = "Ask for less: filter the rows. On a server, other statements may have the rest."
        return NotAnswerable("the statement needs more memory than is left", hint)
    if known := _FAILURES.get(kind):
        return BadUsage(f"the statement fails on a row: {known}")
    if "More than one row" in text:
        return BadUsage("the statement fails: more than one row returned by a subquery used as an expression")
    return NotAnswerable(f"DuckDB does not run this statement: {kind}", "Write it in a simpler form.")


def _marked(text: str) -> BadUsage | NotAnswerable | None:
    """Return the error of a message that an expression of ours raised."""
    if (found := next((each for mark, each in _REASONS.items() if mark in text), None)) is not None:
        return NotAnswerable(*found)
    if column := _after(_INEXACT, text):
        hint = "Ask for other columns, or with exact_text in the dialect spark."
        return NotAnswerable(f"{column} has a value here that only its text holds, such as infinity", hint)
    if (failure := _after(FAILED, text)) == NO_YEAR:
        return no_year()
    return BadUsage(f"the statement fails on a row: {failure}") if failure else None


_FEWER = "Ask for fewer columns, or for parts of the rows with LIMIT."
_FORMS = "Intervals are read as '1 day 02:30:00', times with exactly the digits of their format."
_REASONS: Mapping[str, tuple[str, str]] = {
    MIXED: (
        "numbers that are equal may have different texts here, such as 1.0 and 1.00, or -0 and 0",
        "Cast them to a scale, numeric(12,2), or to text; add 0 to a float.",
    ),
    BOTH_WAYS: (
        "generate_series by an interval with parts of both signs is not translated",
        "Make a series of whole numbers, and add n times the interval.",
    ),
    _LONG: (f"{HELD_ROWS:,} rows have texts of more than {HELD_BYTES >> 20} MB", _FEWER),
    _NOT_FINITE: ("a number is NaN or infinite", "Numbers are computed if they are finite; leave it out."),
    _TOO_MANY_DIGITS: (
        f"a number has more than {numbers.DIGITS:,} digits",
        "Cast to double precision, or leave it out.",
    ),
    NOT_READ: ("a text of a time, an interval or a float has a form that is not read here", _FORMS),
    _OF_LOCALE: (
        "whether a combining mark or a new character ends a word for initcap depends on the locale",
        "Leave such texts out.",
    ),
    _ENDS_IN_ESCAPE: (f"{patterns.ENDS_IN_ESCAPE} is not translated", "Write the escape character twice."),
    _UNSETTLED: ("the last digit of a power or logarithm of numeric is not certain", "Cast to double precision."),
}
"""What the marks of failures mean, and what to do."""


def _of_form(text: str) -> BadUsage | NotAnswerable | None:
    """Return the error of a message about the form of a statement, its first line: the others quote the statement."""
    if "join on subquery" in text:
        hint = "Compute it in a subquery of FROM."
        return NotAnswerable("a subquery in the condition of an outer join is not translated", hint)
    if "GROUPING " in text:
        return BadUsage("arguments to GROUPING must be keys of GROUP BY")
    if "GROUP BY" in text:
        hint = "Name every column in GROUP BY, or all columns of its table's key."
        return NotAnswerable("a column is neither grouped nor in an aggregate", hint)
    return None


def _after(mark: str, text: str) -> str:
    """Return the rest of the line after a mark."""
    return text.partition(mark)[2].split("\n", 1)[0].strip()


_FAILURES: Mapping[str, str] = {
    "OutOfRangeException": "value out of range",
    "ConversionException": "value out of range for its type",
}
