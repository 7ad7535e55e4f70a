"""Masking at capture: no value reaches a file of the lake, by any way into it, and the history stays exact."""

import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import psycopg
import pyarrow.parquet as pq
import pytest

from auditlake.config import load_settings
from auditlake.engine import Engine
from auditlake.errors import ConfigError
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.new_tables import find_new
from auditlake.snapshot.worker_pool import start_workers
from auditlake.source.connection import connect
from auditlake.spark.on_demand import SparkOnDemand
from tests import command
from tests.crash.killed import killed_at
from tests.server import execute

pytestmark = pytest.mark.pg

SECRET = "0123456789abcdef0123456789abcdef"
SETTINGS = """
[mask]
secret = "{secret}"

[mask.columns]
"public.*.email" = "hash"
"public.orders.buyer" = "hash"
"public.people.phone" = "keep_last 4"
"public.people.card" = "truncate 4"
"public.people.tax" = "hash"
"public.people.photo" = "hash"
"public.people.note*" = "hash"
"public.people.born" = "null"
"""
TABLES = """
create table people (id int primary key, email text, phone varchar(30), card char(20), tax uuid, photo bytea, note text,
                     born date);
alter table people alter note set storage external;
create table orders (id int primary key, buyer text, amount int);
create table logins (email text primary key, n int);
create table bag (email text, n int);
alter table bag replica identity full;
"""
TAX = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
PHOTO = bytes.fromhex("decafbad00c0ffee")
FORBIDDEN = (b"zzclear", b"+4917055", b"411122223333", TAX.encode(), UUID(TAX).bytes, PHOTO, PHOTO.hex().encode())
"""Bytes of the values that the tests write, in each form in which they could be stored."""
FORBIDDEN_TEXTS = ("zzclear", "+4917055", "411122223333", TAX, PHOTO.hex(), "1987-06-05", repr(PHOTO)[2:-1])


LARGE = "zzclear " + "0123456789" * 1000
SMALL_PARTS = """
import auditlake.capture.capture as capture, auditlake.replication.spool as spool
from auditlake.replication.stream import BufferLimits
capture._BATCH = BufferLimits(frames=100, size_bytes=10_000)
capture._FULL = BufferLimits(frames=500, size_bytes=50_000)
spool.Spool.__init__.__defaults__ = (None, 1000)
"""


def hashed(text: str) -> str:
    """Return HMAC-SHA-256 of a text, from the standard library."""
    return hmac.digest(SECRET.encode(), text.encode(), "sha256").hex()


def person(number: int, note: str = "zzclear note") -> str:
    """Return an INSERT of a person whose every masked value is forbidden."""
    phone, card = f"+49170551{number:04}", f"411122223333{number:04}"
    return (
        f"insert into people values ({number}, 'zzclear{number}@x.org', '{phone}', '{card}', '{TAX}',"
        f" '\\x{PHOTO.hex()}', '{note}', '1987-06-05')"
    )


@dataclass
class Site:
    """A database, its lake, and the folder with the settings."""

    dsn: str
    root: Path

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return Lake(self.root / "lake")

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        execute(self.dsn, *statements)

    def configure(self, text: str = SETTINGS, secret: str = SECRET) -> None:
        """Write the settings and the secret."""
        (self.root / "secret").write_text(f"{secret}\n")
        (self.root / "auditlake.toml").write_text(text.format(secret=self.root / "secret"))

    def arguments(self, *arguments: str) -> list[str | Path]:
        """Return the arguments of a command with these settings."""
        settings = self.root / "auditlake.toml"
        return ["--config", settings, arguments[0], "--source", self.dsn, "--lake", self.lake.root, *arguments[1:]]

    def run(self, *arguments: str) -> command.Done:
        """Run a command in this process."""
        done = command.run_here(self.arguments(*arguments))
        for text in (done.stdout, done.stderr):
            assert SECRET not in text
        return done

    def well(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*arguments)
        assert done.code == 0, done.stderr
        return done.stdout

    def rows(self, sql: str, *options: str) -> list[dict[str, object]]:
        """Ask the lake."""
        arguments: list[str | Path] = ["--config", self.root / "auditlake.toml", "sql", "--lake", self.lake.root]
        arguments += ["--format", "json"]
        done = command.run_here([*arguments, *options, sql])
        assert done.code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def lsn(self) -> str:
        """Return the current end of the log."""
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])


def make_site(database: str, folder: Path) -> Site:
    """Make a database with people, and settings that mask them."""
    made = Site(database, folder)
    made.execute(TABLES, person(1), person(2), "insert into people (id) values (3)")
    made.execute(
        "insert into orders values (1, 'zzclear1@x.org', 10)", "insert into logins values ('zzclear1@x.org', 1)"
    )
    made.execute("insert into bag values ('zzclear1@x.org', 1), ('zzclear1@x.org', 1), ('zzclear2@x.org', 2)")
    made.configure()
    return made


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """A database with people, and settings that mask them."""
    return make_site(database, tmp_path)


def leaks(lake: Lake) -> Iterator[str]:
    """Yield where a forbidden value is: in the bytes of a file, or in the values of a Parquet file."""
    for path in sorted(lake.root.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        yield from (f"{path}: {found!r}" for found in FORBIDDEN if found in content)
        if path.suffix == ".parquet":
            text = repr(pq.read_table(path).to_pylist()) + str(pq.read_metadata(path).to_dict())
            yield from (f"{path}: {found}" for found in FORBIDDEN_TEXTS if found in text)
            yield from (f"{path}: a date" for _ in [0] if "datetime.date(1987, 6, 5)" in text)


CHANGES = (
    person(4, LARGE),
    "update people set card = '4111222233339999', phone = '+49170550000' where id = 4",
    "update logins set email = 'zzclear9@x.org' where email = 'zzclear1@x.org'",
    "delete from bag where ctid = (select min(ctid) from bag where email = 'zzclear1@x.org')",
    "update bag set email = 'zzclear3@x.org' where email = 'zzclear2@x.org'",
    "insert into orders values (2, 'zzclear4@x.org', 20)",
    "alter table people add note_text text default 'zzclear default', add plain text default 'shown'",
    person(5),
    "update people set note_text = 'zzclear added' where id = 3",
    "alter table people rename email to mail",
    "update people set mail = 'zzclear7@x.org' where id = 2",
    "delete from people where id = 1",
)


def check_people(site: Site) -> None:
    """Check the state after CHANGES."""
    of_people = "select id, mail, phone, card, tax, note, born, note_text, plain from public.people order by id"
    people = site.rows(of_people, "--dialect", "spark")  # char(n) as it is stored, without blanks
    assert [row["id"] for row in people] == [2, 3, 4, 5]
    mails = [hashed(f"zzclear{number}@x.org") for number in (7, 4, 5)]
    assert [row["mail"] for row in people] == [mails[0], None, *mails[1:]]
    assert [row["phone"] for row in people] == ["0002", None, "0000", "0005"]
    assert [row["card"] for row in people] == ["4111", None, "4111", "4111"]
    assert people[2]["note"] == hashed(LARGE)
    assert people[0]["tax"] == str(UUID(bytes=hmac.digest(SECRET.encode(), TAX.encode(), "sha256")[:16]))
    assert {row["born"] for row in people} == {None}
    texts = [hashed(f"zzclear {word}") for word in ("default", "added")]
    assert [row["note_text"] for row in people] == [texts[0], texts[1], texts[0], texts[0]]
    assert [row["plain"] for row in people] == ["shown"] * 4


def test_no_value_reaches_the_lake(site: Site) -> None:
    """Through copy, stream, key changes, whole old rows, TOAST, renames, added columns; with the DDL trigger, too."""
    site.well("bootstrap")
    assert not list(leaks(site.lake))
    copied = site.lsn()
    site.execute(*CHANGES)
    changed = site.lsn()
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    check_people(site)
    assert site.rows("select * from public.logins") == [{"email": hashed("zzclear9@x.org"), "n": 1}]
    bag = site.rows("select email, n from public.bag order by n")
    assert bag == [{"email": hashed("zzclear1@x.org"), "n": 1}, {"email": hashed("zzclear3@x.org"), "n": 2}]
    joined = "select o.id from public.people p join public.orders o on o.buyer = p.mail"
    assert site.rows(joined) == [{"id": 2}]
    before = site.rows("select email, n from public.logins", "--as-of", copied)
    assert before == [{"email": hashed("zzclear1@x.org"), "n": 1}]
    undo = site.run("diff", copied, changed, "logins", "--format", "sql", "-R")
    assert (undo.code, "the values of email of public.logins are masked" in undo.stderr) == (7, True), undo
    site.well("check", "--install-ddl-trigger", "--yes")
    site.execute(
        "truncate logins",
        "create table visits (id int primary key, email text)",
        "insert into visits values (1, 'zzclear1@x.org')",
        "alter table orders add email text default 'zzclear ordered'",
        "alter table people rename mail to letter",
        "update people set letter = 'zzclear letter' where id = 2",
    )
    site.well("bootstrap", "--table", "public.*")
    site.execute("insert into visits values (2, 'zzclear4@x.org')")
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    assert {row["email"] for row in site.rows("select email from public.orders")} == {hashed("zzclear ordered")}
    visits = site.rows("select email from public.visits order by id")
    assert visits == [{"email": hashed("zzclear1@x.org")}, {"email": hashed("zzclear4@x.org")}]
    assert site.rows("select letter from public.people where id = 2") == [{"letter": hashed("zzclear letter")}]
    assert site.rows("select * from public.logins") == []


def test_a_killed_capture_leaves_no_value(site: Site) -> None:
    """After a part of a transaction; `tests/release` has the other effects."""
    kill_capture(site, After.PART)


def kill_capture(site: Site, place: After) -> None:
    """A large transaction, streamed and in parts, is masked in every file that a kill leaves, and complete after it."""
    site.well("bootstrap")
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        name = str(conn.info.dbname)
        conn.execute(f"alter database {name} set logical_decoding_work_mem = '64kB'".encode())
    many = "select 100 + n, 'zzclear' || n || '@x.org', '+49170551' || n from generate_series(1, 3000) n"
    site.execute(f"insert into people (id, email, phone) {many}")
    killed_at(place, site.arguments("capture", "--until-current"), code=SMALL_PARTS)
    assert not list(leaks(site.lake))
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    found = site.rows("select count(*) as n, count(distinct email) as hashes from public.people where id > 100")
    assert found == [{"n": 3000, "hashes": 3000}]
    assert site.rows("select email from public.people where id = 103") == [{"email": hashed("zzclear3@x.org")}]


WRONG = (
    ('"public.people.emial" = "hash"', "public.people.emial of [mask] matches nothing"),
    ('"public.people.id" = "hash"', "column id of public.people cannot have the rule hash"),
    ('"public.people.born" = "truncate 4"', "column born of public.people cannot have the rule truncate 4"),
    ('"public.people.id" = "null"', "use hash"),
    ('"public.logins.email" = "keep_last 5"', "use hash"),
    ('"public.people.note" = "null"', "it is NOT NULL"),
    ('"public.people.note" = "scramble"', "has the rule 'scramble'"),
    ('"public.people.note" = "truncate 0"', "has the rule 'truncate 0'"),
    ('"people.note" = "hash"', "need patterns of schema, table and column"),
    ('"public.people.*" = "keep"\n[mask]\nstrict = ["public.persons"]', "TOML"),
)


def test_a_wrong_rule_is_refused_before_the_first_effect(site: Site) -> None:
    """Exit 3, and neither lake nor slot nor publication exist; so without a secret, or with one that is too short."""
    site.execute("update people set note = ''", "alter table people alter note set not null")
    for rule, problem in WRONG:
        site.configure(f'[mask]\nsecret = "{{secret}}"\n[mask.columns]\n{rule}\n')
        done = site.run("bootstrap")
        assert (done.code, problem in done.stderr) == (3, True), done.stderr
        assert site.run("check").stderr == done.stderr
    site.configure('[mask]\nsecret = "{secret}"\nstrict = ["public.logins"]\n[mask.columns]\n"*.*.email" = "hash"')
    assert "column n of public.logins has no rule" in site.run("bootstrap").stderr
    site.configure(secret="short")
    assert "has 5 bytes, need at least 16" in site.run("bootstrap").stderr
    (site.root / "secret").unlink()
    missing = site.run("bootstrap")
    assert (missing.code, "cannot be read: No such file" in missing.stderr) == (3, True)
    site.configure('[mask.columns]\n"public.*.email" = "hash"')
    assert "has the rule hash and no secret" in site.run("bootstrap").stderr
    assert not site.lake.root.exists()
    with psycopg.connect(site.dsn) as conn:
        left = "select (select count(*) from pg_replication_slots), (select count(*) from pg_publication)"
        assert conn.execute(left).fetchone() == (0, 0)


def test_a_killed_bootstrap_leaves_no_value(site: Site) -> None:
    """Which has copied rows; `tests/release` has the other effects."""
    kill_bootstrap(site, After.FILES_COPIED)


def kill_bootstrap(site: Site, place: After) -> None:
    """The next run completes the lake under the same rules."""
    killed_at(place, site.arguments("bootstrap"))
    assert not list(leaks(site.lake))
    site.well("bootstrap")
    assert not list(leaks(site.lake))
    assert site.rows("select email from public.people where id = 1") == [{"email": hashed("zzclear1@x.org")}]


def test_rules_of_recorded_columns_do_not_change(site: Site) -> None:
    """Another rule, none, or another secret is refused; rules for what is not recorded yet are, with their LSN."""
    site.well("bootstrap")
    changed = {
        "hash: column email of public.bag was captured under hash": SETTINGS.replace(
            '*.email" = "hash', '*.email" = "keep'
        ),
        "keep_last 4": SETTINGS.replace("keep_last 4", "keep_last 3"),
        "column amount of public.orders was captured under no rule": SETTINGS + '"public.orders.amount" = "null"\n',
        "captured under": "",
    }
    for problem, text in changed.items():
        site.configure(text)
        done = site.run("capture", "--until-current")
        assert (done.code, problem.partition(": ")[2] in done.stderr) == (3, True), done.stderr
    site.configure(secret="another secret of enough bytes")
    done = site.run("capture", "--until-current")
    assert (done.code, "fingerprint" in done.stderr) == (3, True), done.stderr
    site.execute("create table guests (id int primary key, nick text)", "insert into guests values (1, 'zzclear nick')")
    site.configure(SETTINGS + '"public.guests.nick" = "hash"\n')
    site.well("bootstrap", "--table", "public.*")
    assert site.rows("select nick from public.guests") == [{"nick": hashed("zzclear nick")}]
    recorded = json.loads((site.lake.root / "masks.json").read_text())
    assert recorded["rules"][-1] == ["public.guests.nick", "hash"]
    assert (recorded["earlier"][0]["from_lsn"], recorded["from_lsn"] > "0/0") == ("0/0", True)
    assert not list(leaks(site.lake))


def test_a_column_that_cannot_be_masked_parks_its_table(site: Site) -> None:
    """A new column without a rule in a strict table, and one that gets a masked name: no value of either is shown."""
    strict = SETTINGS.replace(
        "[mask.columns]", 'strict = ["public.logins"]\n[mask.columns]\n"public.logins.n" = "keep"'
    )
    site.configure(strict)
    site.execute("alter table bag add other text")
    site.well("bootstrap")
    site.execute("insert into logins values ('zzclear5@x.org', 5)")
    before = site.lsn()
    site.execute("insert into logins values ('zzclear6@x.org', 6)")
    site.well("capture", "--until-current")
    site.execute(
        "alter table logins add nick text",
        "insert into logins values ('zzclear2@x.org', 2, 'zzclear nick')",
        "alter table bag drop email",
        "alter table bag rename other to email",
        "insert into bag values (3, 'zzclear other')",
        "alter table people alter card type bytea using null",
        "insert into people (id, card) values (9, 'zzclear card')",
    )
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    status = site.well("status", "--json")
    for reason in ("column nick: no rule of [mask] is for it", "column email: it was recorded in the clear"):
        assert reason in status
    assert site.rows("select count(*) as n from public.logins", "--as-of", before) == [{"n": 2}]
    assert site.run("sql", "select * from public.logins").code == 7
    assert site.run("resync", "--table", "logins").code == 3
    strict = strict.replace("truncate 4", "null")
    site.configure(strict + '"public.logins.nick" = "truncate 2"\n')
    site.well("resync", "--table", "logins", "--table", "bag")
    site.execute(
        "insert into logins values ('zzclear3@x.org', 3, 'zzclear nick')", "insert into bag values (4, 'zzclear')"
    )
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    nicks = site.rows("select n, nick from public.logins where n < 4 order by n")
    assert nicks == [{"n": 1, "nick": None}, {"n": 2, "nick": "zz"}, {"n": 3, "nick": "zz"}]
    assert site.rows("select email from public.bag where n = 4") == [{"email": hashed("zzclear")}]


def test_a_column_that_got_the_name_of_a_masked_one_and_lost_it_is_not_shown(site: Site) -> None:
    """Before capture looks, without the DDL trigger: it has the number that the message of its former name had."""
    site.well("bootstrap")
    site.execute(
        "begin; alter table orders drop buyer; alter table orders add buyer text; update orders set amount = 1; commit",
        "update orders set buyer = 'zzclear1'",
        "alter table orders rename buyer to payer; alter table orders add buyer text",
        "update orders set payer = 'zzclear2', buyer = 'zzclear3'",
    )
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))


@pytest.mark.parametrize("last", ["alter table orders add buyer text; update orders set buyer = 'zzclear3'", "select"])
def test_a_column_whose_identity_is_not_known_is_not_shown(site: Site, last: str) -> None:
    """The masked one is the last, so the catalog does not show which column a message had; a copy needs a rule."""
    site.well("bootstrap")
    site.execute("alter table orders drop amount", "update orders set buyer = 'zzclear0'")
    site.well("capture", "--until-current")
    site.execute(
        "alter table orders drop buyer; alter table orders add buyer text",
        "update orders set buyer = 'zzclear1'",
        "alter table orders rename buyer to payer",
        last,
        "update orders set payer = payer || '2'",
    )
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    refused = site.run("resync", "--table", "orders")
    assert (refused.code, "column payer: it may be a masked column under another name" in refused.stderr) == (3, True)
    site.configure(SETTINGS.replace("orders.buyer", "orders.*er"))
    site.well("resync", "--table", "orders")
    site.execute("update orders set payer = 'zzclear4'")
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    assert site.rows("select payer from public.orders") == [{"payer": hashed("zzclear4")}]


def test_a_column_with_a_lower_number_than_a_later_one_is_not_shown(site: Site) -> None:
    """Under a column list a message may lack a column, so the first message is taken for one with the later column."""
    site.well("bootstrap")
    listed = "alter publication auditlake set table orders ({}), people, logins, bag"
    site.execute(
        listed.format("id, amount"),
        "alter table orders drop buyer; alter table orders add buyer text",
        listed.format("id, amount, buyer"),
        "update orders set buyer = 'zzclear1'",
        "alter table orders rename buyer to payer; alter table orders add buyer text",
        listed.format("id, amount, payer, buyer"),
        "update orders set payer = 'zzclear2', buyer = 'zzclear3'",
    )
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))


def test_with_the_ddl_trigger_each_column_is_known(site: Site) -> None:
    """The message before its first report is repeated; the trigger tells that the last column is another one."""
    site.execute("alter table orders drop amount")
    site.well("bootstrap")
    site.well("check", "--install-ddl-trigger", "--yes")
    site.well("capture", "--until-current")
    site.execute("update orders set buyer = 'zzclear0'")
    site.well("capture", "--until-current")
    site.execute(
        "update orders set buyer = 'zzclear1'",
        "alter table orders drop buyer, add note text",
        "update orders set note = 'shown'",
    )
    site.well("capture", "--until-current")
    assert site.rows("select * from public.orders") == [{"id": 1, "note": "shown"}]
    assert not list(leaks(site.lake))


def check_first_seen(site: Site, *first: str) -> None:
    """Let a command see a column before capture comes to the message of its former name."""
    site.execute("alter table orders drop amount")
    site.well("bootstrap")
    site.execute(
        "alter table orders drop buyer; alter table orders add buyer text",
        "update orders set buyer = 'zzclear1'",
        "alter table orders rename buyer to payer; alter table orders add buyer text",
        "update orders set payer = 'zzclear2'",
    )
    site.run(*first)
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))


def test_a_column_that_a_copy_sees_before_capture_is_not_shown(site: Site) -> None:
    """The catalog shows it as a new one without a rule."""
    check_first_seen(site, "resync", "--table", "orders")


_PARTS = (
    "create table visits (id int, year int, mail text, primary key (id, year)) partition by list (year)",
    "create table visits1 partition of visits for values in (1)",
    "create table visits2 partition of visits for values in (2)",
    "insert into visits values (1, 1, 'zzclear1'), (2, 2, 'zzclear2')",
)
_OF_VISITS = '"public.visits.mail" = "hash"\n'


def copy_new(site: Site) -> list[str]:
    """Copy the new tables, as `follow` does."""
    masking = load_settings(site.root / "auditlake.toml").masking
    target = Target(site.dsn, site.lake, "auditlake", "auditlake", None, failover=False, masking=masking)
    with connect(site.dsn) as conn:
        names = frozenset(table.name for table in find_new(conn, target))
    spark = SparkOnDemand({}, Engine.DUCKDB)
    copied = bootstrap(replace(target, wanted=names), lambda: start_workers(spark), lambda _: None)
    return [table.name.table for table in copied]


def test_a_detached_partition_keeps_the_masks_of_its_table(site: Site) -> None:
    """Under its own name, for which there is no rule; also if capture saw the detachment first, and after a rename."""
    site.execute(*_PARTS)
    site.configure(SETTINGS + _OF_VISITS)
    site.well("bootstrap")
    site.execute("alter table visits detach partition visits2", "alter table visits2 rename to old_visits")
    site.well("capture", "--until-current")
    site.well("resync", "--table", "visits")
    assert copy_new(site) == ["old_visits"]
    site.execute("insert into old_visits values (3, 2, 'zzclear3')", "insert into visits values (4, 1, 'zzclear4')")
    site.well("follow", "--until-current")
    assert [row["mail"] for row in site.rows("select mail from old_visits order by id")] == [
        hashed("zzclear2"),
        hashed("zzclear3"),
    ]
    site.execute("alter table old_visits rename mail to address; update old_visits set address = 'zzclear5'")
    site.well("follow", "--until-current")
    assert {row["address"] for row in site.rows("select address from old_visits")} == {hashed("zzclear5")}
    assert not list(leaks(site.lake))


def test_a_detached_partition_without_the_name_of_a_masked_column_is_refused(site: Site) -> None:
    """Any of its columns may be the masked one; with a rule for each it is copied."""
    site.execute(*_PARTS)
    site.configure(SETTINGS + _OF_VISITS)
    site.well("bootstrap")
    site.execute("alter table visits detach partition visits2", "alter table visits2 rename mail to address")
    with pytest.raises(ConfigError, match="column address: it may be a masked column"):
        copy_new(site)
    assert not list(leaks(site.lake))
    rules = {"id": "keep", "year": "keep", "address": "hash"}
    site.configure(SETTINGS + _OF_VISITS + "".join(f'"public.visits2.{n}" = "{r}"\n' for n, r in rules.items()))
    assert copy_new(site) == ["visits2"]
    assert site.rows("select address from visits2") == [{"address": hashed("zzclear2")}]
    assert not list(leaks(site.lake))
