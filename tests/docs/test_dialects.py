"""SQL examples of README and docs/ in both dialects: the same answer, or the page says which one reads them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import Done, run_here
from tests.server import Server

pytestmark = pytest.mark.pg

_ROOT = Path(__file__).parents[2]
_PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_COMMAND = re.compile(r"""auditlake sql [^\n`]*?(?:'((?:select|with)[^'\n]*)'|"((?:select|with)(?:[^"\\\n]|\\.)*)")""")
_BLOCK = re.compile(r"```sql\n(select.*?)```", re.DOTALL)
_TABLES = """
create table orders (order_id int primary key, customer_id int, status text, total numeric(10,2));
create table order_lines (order_id int, line_no int, item text, price numeric(10,2), primary key (order_id, line_no));
create table products (product_id int primary key, price numeric(8,2));
create table rooms (room int primary key, beds int, price numeric(8,2), sea_view boolean);
create table guests (guest_id int primary key, name text, email text);
create table bookings (booking_id int primary key, guest_id int, room int, status text);
"""
_SAYS = """select pg_logical_emit_message(true, 'auditlake', '{"actor": "bob", "reason": "price list"}');"""
_DAY = (
    """insert into orders values (41, 7, 'placed', 120), (42, 7, 'placed', 488.90), (43, 7, 'placed', null);
       insert into order_lines values (41, 1, 'tray', 120); insert into products values (3, 8), (4, 'NaN');
       insert into rooms values (1, 2, 80, true), (2, 2, 95, null);
       insert into guests values (1, 'Ada', null); insert into bookings values (101, 1, 2, 'asked')""",
    """update orders set status = 'paid' where order_id in (41, 42); delete from orders where order_id = 43;
       update bookings set status = 'confirmed'; delete from guests""",
    _SAYS + "update order_lines set price = 110; update products set price = 10 where product_id = 3",
)
_MOMENTS = ("2026-11-21 09:30", "0/16B3748", "2026-11-21 17:00", "-5m")
"""As the pages write them: during the day, the first two after its first transaction."""


@dataclass(frozen=True)
class Example:
    """A statement, its page, and the section that it stands in."""

    page: str
    line: int
    section: str
    sql: str

    @property
    def needs_spark(self) -> bool:
        """Whether it calls the function that only Spark has."""
        return "exact_text" in self.sql


def _examples() -> Iterator[Example]:
    for page in _PAGES:
        text = page.read_text()
        for found in (*_COMMAND.finditer(text), *_BLOCK.finditer(text)):
            sql = next(filter(None, found.groups())).replace('\\"', '"').strip()
            if "delta.`" not in sql:  # any reader of Delta reads that, without auditlake
                before, after = text[: found.start()], text[found.start() :]
                section = before.rpartition("\n## ")[2] + after.partition("\n## ")[0]
                yield Example(page.name, before.count("\n") + 1, section, sql)


_EXAMPLES = tuple(_examples())


@dataclass(frozen=True)
class Day:
    """The lake, and its moments in place of those of the pages."""

    lake: Path
    moments: dict[str, str]

    def asked(self, example: Example, dialect: str, *, engine: str = "duckdb") -> list[str]:
        """Return the arguments of a command that asks an example."""
        sql = example.sql
        for written, ours in self.moments.items():
            sql = sql.replace(f"'{written}'", f"'{ours}'")
        return ["sql", "--lake", str(self.lake), "--dialect", dialect, "--engine", engine, "--format", "csv", sql]


@pytest.fixture(scope="module")
def day(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """A lake with the tables of all pages."""
    name, folder = server.create_database(), tmp_path_factory.mktemp("day")
    with psycopg.connect(server.dsn(name), autocommit=True) as conn:
        conn.execute(_TABLES)
        lake = make_lake(server.dsn(name), folder / "lake")
        for transaction in _DAY:
            conn.execute(transaction.encode())
    capture(server.dsn(name), lake)
    first, *_, last = (f"{each['lsn'] >> 32:X}/{each['lsn'] & 0xFFFFFFFF:X}" for each in oracle.transactions(lake))
    yield Day(Path(str(lake.root)), dict(zip(_MOMENTS, (first, first, last, last), strict=True)))
    server.drop_database(name)


def _rows(done: Done) -> list[str]:
    """Return the rows of an answer: names of columns without an alias differ between the dialects."""
    return done.stdout.splitlines()[1:]


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda each: f"{each.page}:{each.line}")
def test_an_example_has_one_answer_in_both_dialects(example: Example, day: Day) -> None:
    """Or its section says that it is of one dialect."""
    postgres, spark = (run_here(day.asked(example, dialect)) for dialect in ("postgres", "spark"))
    if example.needs_spark:
        assert postgres.code != 0
        assert "There `exact_text`" in example.section
        return
    assert postgres.code == 0, postgres.stderr
    if spark.code == 0:
        arrange = list if "order by" in example.sql else sorted
        assert arrange(_rows(postgres)) == arrange(_rows(spark))
        assert _rows(postgres)
    else:
        assert "In Spark's dialect" in example.section, spark.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_what_needs_spark_runs_there(day: Day) -> None:
    """The exact text of a NaN."""
    (example,) = (each for each in _EXAMPLES if each.needs_spark)
    done = run_here(day.asked(example, "spark", engine="spark"))
    assert sorted(_rows(done)) == ["3,10.00", "4,NaN"], done.stderr


def test_examples_of_every_page_are_found() -> None:
    """A statement that is written in another way would not be asked."""
    for page in _PAGES:
        commands = re.findall(r"auditlake sql [^\n`]*?['\"](?:select|with)", page.read_text())
        assert len(commands) == len(_COMMAND.findall(page.read_text())), page.name
    assert len(_EXAMPLES) > 20
