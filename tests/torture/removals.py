"""Sealing, retention, holds and erasure during a campaign, on tables of their own; at the end values are looked for.

Rows are inserted, changed, given another key and deleted, each with values that occur nowhere else, and a context that
has one of them. Meanwhile

- the lake is sealed, and digests are signed by the lake and by a witness,
- versions of these tables expire, and changes and transactions of all tables,
- rows are held and released,
- rows are erased by their key, by values, or in some columns, the key's among them,

by processes of which some are killed after an effect, beside all else that the campaign does. At the end every erasure
is finished, no byte of the lake has a value that was erased, nothing was removed during a hold, and all digests fit.
"""

import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psycopg

from auditlake.erasure.forget import forget
from auditlake.erasure.retention import expire
from auditlake.erasure.scope import Wanted
from auditlake.errors import AuditlakeError, NotAnswerable
from auditlake.failpoints import After
from auditlake.lake.erasures import read_erasures
from auditlake.lake.expiries import read_runs
from auditlake.lake.histories import list_histories
from auditlake.lake.holds import holds_in_force, read_events
from auditlake.lake.key_tokens import read_secret, token
from auditlake.lake.layout import Lake
from auditlake.ledger.digest import new_key
from auditlake.messages import say
from auditlake.relation import TableName
from auditlake.settings.retention_rules import RetentionPeriod, RetentionPeriods
from auditlake.store import objects
from auditlake.store.place import Place, Remote, parse_url
from tests.erasure_lake import found_in
from tests.random_ddl import ERASED
from tests.torture.bootstrap_faults import finish
from tests.torture.log_archive import LogArchive
from tests.torture.testbed import Process, Testbed, expect
from tests.torture.work import LOST
from tests.witness import Witness, serving

_KEYED, _NAMED, _LOOSE = _TABLES = f"{ERASED}.persons", f"{ERASED}.logins", f"{ERASED}.events"
SETUP = (
    f"create schema {ERASED}; create table {_KEYED} (id int primary key, name text, note text);"
    f" create table {_NAMED} (id text primary key, name text, note text);"
    f" create table {_LOOSE} (id int, name text, note text); alter table {_LOOSE} replica identity full;"
)
_OF_ERASURE = (
    After.ERASURE_BEGUN,
    After.SECRETS_DESTROYED,
    After.VALUES_REWRITTEN,
    After.VALUES_ERASED,
    After.FILES_DELETED,
    After.LOG_CHECKPOINTED,
    After.LOG_FORGOTTEN,
    After.ERASURE_ENDED,
)
_OF_EXPIRY = (After.EXPIRY_RECORDED, After.EXPIRY_WRITTEN, After.EXPIRED)
_OF_DIGEST = (
    After.BLOCK_PREPARED,
    After.ENTRIES_SEALED,
    After.BLOCK_SEALED,
    After.DIGEST_COSIGNED,
    After.DIGEST_STORED,
)
_EXPIRE = "from tests.torture.removals import expire_before; expire_before({root!r}, {before_us})"
_PAUSE_S, _LONG_S, _OLDEST_S = 0.5, 300.0, 90
_MOVED, _LAST = 1_000_000, "-1"
_WRITTEN, _SOME, _HERE, _TRIED = 3, 0.3, 0.6, 5
_KILLED, _DONE, _USAGE, _REFUSED, _LAKE, _NOT_YET = -9, 0, 2, 3, 6, 7


class _Until(RetentionPeriod):
    """A period that ends at a time, whatever time it is now."""

    time_us: int

    def __init__(self, time_us: int) -> None:
        super().__init__(days=1)
        object.__setattr__(self, "time_us", time_us)

    def before(self, _: int) -> int:
        return self.time_us


def expire_before(root: str, before_us: int) -> None:
    """Let everything expire that is older than a time; exit as a command would if that fails."""
    try:
        _expire_before(Lake(cast("Path", parse_url(root) if "://" in root else Path(root))), before_us)
    except AuditlakeError as exc:
        say(exc.message)
        sys.exit(exc.exit_code)


def _expire_before(lake: Lake, before_us: int) -> None:
    period = _Until(before_us)
    expire(lake, RetentionPeriods(((f"{ERASED}.*", period),), period, period), "campaign", say)


@dataclass
class _Subject:
    """Rows that are erased by one command.

    `values` are in their history; `context` is in it and in that of a transaction.
    """

    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[str, ...]
    context: str

    @classmethod
    def random(cls, chance: random.Random, number: int) -> "_Subject":
        """Return the one with a number, of any kind."""
        first, second, key, context = (f"{chance.getrandbits(96):024x}" for _ in range(4))
        keys: tuple[str, ...] = (f"{number}",)
        columns, values = tuple[str, ...](), (first, second)
        table = chance.choice([_KEYED, _NAMED, _LOOSE])
        if table == _NAMED:
            return cls(table, (key, f"anon-{number}"), ("id", "name", "note"), (*values, key), context)
        if table == _KEYED and chance.random() < _SOME:
            columns = ("name", "note")
        if table == _KEYED and chance.random() < _SOME:
            keys = (*keys, f"{number + _MOVED}")
        return cls(table, keys, columns, values, context)

    def wanted(self, key: str) -> Wanted:
        """Return the erasure by one of its keys."""
        is_loose = self.table == _LOOSE
        where = (f"id={key}",) if is_loose else ()
        return Wanted(self.table, () if is_loose else (key,), self.columns, "campaign", "tests", where)

    def line(self, key: str, root: Place) -> list[str | Path]:
        """Return the same as a command line."""
        how = ["--where", f"id={key}"] if self.table == _LOOSE else [key]
        columns = ["--columns", ",".join(self.columns)] if self.columns else []
        return ["forget", self.table, *how, *columns, "--reason", "campaign", "--lake", cast("Path", root)]

    def tokens(self, secret: bytes) -> set[str]:
        """Return the tokens of its keys, as an erasure records them."""
        where = ("id",) if self.table == _LOOSE else ()
        return {token(secret, TableName(*self.table.split(".")), (*where, key)) for key in self.keys}

    def write(self, conn: "psycopg.Connection[Any]") -> None:
        """Insert the row and change it; then delete it, or overwrite the values of the columns."""
        first, second, key = self.values[0], self.values[1], self.keys[-1]
        with conn.transaction():
            actor = json.dumps({"actor": self.context})
            conn.execute("select pg_logical_emit_message(true, 'auditlake', %s)", (actor,))
            conn.execute(f"insert into {self.table} values (%s, %s, %s)", (self.keys[0], first, self.context))
        conn.execute(f"update {self.table} set name = %s where id = %s", (second, self.keys[0]))
        if len(self.keys) > 1:
            conn.execute(f"update {self.table} set id = %s where id = %s", (key, self.keys[0]))
        if self.columns:
            conn.execute(f"update {self.table} set name = '-', note = null where id = %s", (key,))
        else:
            conn.execute(f"delete from {self.table} where id = %s", (key,))


@dataclass
class _Hold:
    """A hold in force: of all rows of persons, or of those of one subject; and the horizons when it began."""

    name: str
    of: _Subject | None
    horizons: dict[str, int]

    def covers(self, subject: _Subject, key: str) -> bool:
        """Return whether a row is held under this key; one that it had before may have expired."""
        return subject.table == _KEYED and (self.of is None or (self.of is subject and key == subject.keys[0]))


@dataclass
class Evidence:
    """What a campaign keeps outside its lake: keys, digests, the log of before it expired."""

    folder: Path
    witness: Witness
    archive: LogArchive

    @property
    def settings(self) -> dict[str, str]:
        given = {
            "to": str(self.folder / "digests"),
            "key": str(self.folder / "key"),
            "witness": self.witness.url,
            "witness_key": self.witness.public_key,
        }
        return {"AUDITLAKE_DIGEST": json.dumps(given)}

    @property
    def digests(self) -> list[Path]:
        return sorted((self.folder / "digests").rglob("*.digest"))


class Removals(threading.Thread):
    """Writes rows, seals, holds, expires and erases until the end of the campaign."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        super().__init__(name="removals", daemon=True)
        self._bed = bed
        self._chance = random.Random(f"{bed.seed}/removals")  # noqa: S311 - no secret
        self._subjects = list[_Subject]()
        self._left = list[_Subject]()
        self._hold: _Hold | None = None
        folder.mkdir()
        witness = Witness(str(new_key(folder / "key", "campaign").public))
        self._evidence = Evidence(folder, witness, LogArchive(bed.lake))

    @property
    def archive(self) -> LogArchive:
        return self._evidence.archive

    def run(self) -> None:
        steps = {self._erase: 8, self._expire: 2, self._digest: 2, self._change_hold: 2}
        with serving(self._evidence.witness):
            while not self._bed.stop.wait(_PAUSE_S):
                with suppress(*LOST):
                    self._write()
                (step,) = self._chance.choices([*steps], [*steps.values()])
                step()

    def _write(self) -> None:
        for _ in range(_WRITTEN):
            subject = _Subject.random(self._chance, len(self._subjects))
            self._subjects.append(subject)
            with closing(psycopg.connect(self._bed.dsn, autocommit=True)) as conn:
                subject.write(conn)
            self._left.append(subject)

    def _run(self, line: list[str | Path], place: After | None, allowed: tuple[int, ...], code: str = "") -> Process:
        """Run a process to its end, or until the campaign ends."""
        settings = self._evidence.settings if line[0] == "digest" else {}
        process = self._bed.start(line, place, times=self._chance.randint(1, 3), code=code, settings=settings)
        ended = process.wait(_LONG_S, self._bed.stop)
        expect(self._bed, process, ended, allowed)
        process.kill()
        what = "expiry" if code else line[0]
        self._bed.count(f"{what} killed after {place}" if ended == _KILLED else f"{what} ended with {ended}")
        return process

    def _place(self, places: tuple[After, ...]) -> After | None:
        return self._chance.choice(places) if self._chance.random() < 0.5 else None

    def _digest(self) -> None:
        line: list[str | Path] = ["digest", "--lake", self._bed.lake.root]
        done = self._run(line, self._place(_OF_DIGEST), (_DONE, _KILLED, _LAKE))
        if "has signed" in done.output:
            self._bed.fail(f"the witness knows another tree: {done.output}")

    def _expire(self) -> None:
        try:
            current_us = self.archive.read_current()
        except AssertionError as exc:
            self._bed.fail(f"the log: {exc}")
            return
        if current_us is None:
            return
        before_us = current_us - self._chance.randint(0, _OLDEST_S) * 1_000_000
        code = _EXPIRE.format(root=str(self._bed.lake.root), before_us=before_us)
        self._run(["--version"], self._place(_OF_EXPIRY), (_DONE, _KILLED, _LAKE, _REFUSED), code)
        if self._hold is not None:
            self._require_unmoved(self._hold)

    def _horizons(self) -> dict[str, int]:
        found = {str(each.name): int(each.horizon) for each in list_histories(self._bed.lake)}
        return {_KEYED: found.get(_KEYED, 0)} | self.archive.horizons()

    def _change_hold(self) -> None:
        root = self._bed.lake.root
        if self._hold is not None:
            line: list[str | Path] = ["hold", "release", self._hold.name, "--reason", "campaign", "--lake", root]
            done = self._run(line, self._place((After.HOLD_RECORDED,)), (_DONE, _KILLED, _LAKE))
            if self._has_recorded(done):
                self._hold = None
            return
        of = self._chance.choice([None, *(each for each in self._left if each.table == _KEYED)])
        hold = _Hold(f"hold-{len(self._subjects)}", of, self._horizons())
        key = [] if of is None else ["--key", of.keys[0]]
        line = ["hold", "add", hold.name, "--table", _KEYED, *key, "--reason", "campaign", "--lake", root]
        done = self._run(line, self._place((After.HOLD_RECORDED,)), (_DONE, _KILLED, _USAGE, _LAKE, _NOT_YET))
        if self._has_recorded(done):
            self._hold = hold
            self._require_held(hold)

    def _require_held(self, hold: _Hold) -> None:
        """Require that a hold refuses an erasure of what it covers, and lets nothing expire."""
        rows = [(each, key) for each in self._subjects for key in each.keys if hold.covers(each, key)]
        refused = False
        for subject, key in self._chance.sample(rows, min(_TRIED, len(rows))):
            try:
                forget(self._bed.lake, subject.wanted(key), datetime.now(UTC))
            except AuditlakeError as exc:
                refused |= f" is held by {hold.name} " in exc.message
            except OSError:  # the disk is full
                continue
            else:
                self._bed.fail(f"{subject.table} {key} was erased during a hold")
        if refused:
            self._bed.count("hold refused an erasure")
        self._expire()
        self._bed.count("hold outlasted an expiry")

    def _require_unmoved(self, hold: _Hold) -> None:
        """Require that nothing has expired since a hold began."""
        if (now := self._horizons()) != hold.horizons:
            self._bed.fail(f"horizons moved from {hold.horizons} to {now} during a hold")

    def _has_recorded(self, done: Process) -> bool:
        return done.process.returncode in {_DONE, _KILLED} and not self._bed.stop.is_set()

    def _erase(self) -> None:
        if not self._left:
            return
        subject = self._chance.choice(self._left)
        key = self._chance.choice(subject.keys)
        is_held = self._hold is not None and self._hold.covers(subject, key)
        code = self._forget_here(subject, key) if self._chance.random() < _HERE else self._forget(subject, key)
        if code == _DONE:
            self._left.remove(subject)
            if is_held:
                self._bed.fail(f"{subject.table} {key} was erased during a hold")
        if code == _REFUSED:
            self._run(self._resume(), self._place(_OF_ERASURE), (_DONE, _KILLED, _REFUSED, _LAKE))

    def _forget_here(self, subject: _Subject, key: str) -> int:
        code = _DONE
        try:
            forget(self._bed.lake, subject.wanted(key), datetime.now(UTC))
        except AuditlakeError as exc:
            code = exc.exit_code
        except OSError:  # the disk is full
            code = _LAKE
        self._bed.count(f"forget ended with {code}")
        return code

    def _forget(self, subject: _Subject, key: str) -> int | None:
        line = subject.line(key, self._bed.lake.root)
        done = self._run(line, self._place(_OF_ERASURE), (_DONE, _KILLED, _REFUSED, _LAKE, _NOT_YET))
        return None if self._bed.stop.is_set() else done.process.returncode

    def _resume(self) -> list[str | Path]:
        return ["forget", "--resume", "--lake", self._bed.lake.root]

    def verify(self, settle: Callable[[], None]) -> dict[str, int]:
        """Finish everything undisturbed, and check values and digests; return how much was checked.

        `settle` brings what was written to the source into the histories.
        """
        with serving(self._evidence.witness):
            self._finish_erasures()
            before_us = self._write_last(settle)
            erased = self._erased()
            names = [value for each in erased for value in each.values]
            self._require_gone("before the last expiry", names)
            self._hold_last(before_us)
            _expire_before(self._bed.lake, before_us)
            for table in _TABLES:
                finish(self._bed, self._last_line(table))
            self._require_gone("at the end", [*names, *(each.context for each in erased)])
            finish(self._bed, ["digest", "--lake", self._bed.lake.root], settings=self._evidence.settings)
        digests = self._evidence.digests
        given: list[str | Path] = [part for each in digests for part in ("--digest", each)]
        key = self._evidence.witness.public_key
        finish(self._bed, ["verify", *given, "--public-key", key, "--lake", self._bed.lake.root])
        return {
            "subjects": len(self._subjects),
            "erased subjects": len(erased),
            "erasures": len(read_erasures(self._bed.lake)),
            "runs of retention": len(read_runs(self._bed.lake)),
            "events of holds": len(read_events(self._bed.lake)),
            "digests": len(digests),
        }

    def _finish_erasures(self) -> None:
        root = self._bed.lake.root
        for hold in holds_in_force(self._bed.lake):
            finish(self._bed, ["hold", "release", hold.name, "--reason", "campaign", "--lake", root])
        finish(self._bed, self._resume())
        for subject in self._left:
            for key in subject.keys:
                self._require_ended(subject, key)

    def _require_ended(self, subject: _Subject, key: str) -> None:
        try:
            forget(self._bed.lake, subject.wanted(key), datetime.now(UTC))
        except NotAnswerable as exc:
            has_no_past = "ever had" in exc.message or "but what PostgreSQL has now" in exc.message
            is_only_present = key == subject.keys[-1] and "still has the value of id" in exc.message
            if not has_no_past and not is_only_present:
                self._bed.fail(f"{subject.table} {key} cannot be erased: {exc.message}")

    def _write_last(self, settle: Callable[[], None]) -> int:
        """Write rows without values after all others, and the last ones; return a time between them."""
        before_us = None
        for key in (f"{_LAST}1", _LAST):
            with closing(psycopg.connect(self._bed.dsn, autocommit=True)) as conn:
                for table in _TABLES:
                    conn.execute(f"insert into {table} values (%s)", (key,))
                    conn.execute(f"delete from {table} where id = %s", (key,))
            settle()
            before_us = before_us or self.archive.read_current()
        assert before_us is not None
        return before_us

    def _last_line(self, table: str) -> list[str | Path]:
        return _Subject(table, (_LAST,), (), (), "").line(_LAST, self._bed.lake.root)

    def _hold_last(self, before_us: int) -> None:
        """Hold the persons, undisturbed: until the release, erasing the last one is refused, and nothing expires."""
        root, hold = self._bed.lake.root, _Hold("last", None, self._horizons())
        finish(self._bed, ["hold", "add", hold.name, "--table", _KEYED, "--reason", "campaign", "--lake", root])
        finish(self._bed, self._last_line(_KEYED), (_REFUSED,))
        _expire_before(self._bed.lake, before_us)
        self._require_unmoved(hold)
        finish(self._bed, ["hold", "release", hold.name, "--reason", "campaign", "--lake", root])

    def _erased(self) -> list[_Subject]:
        """Return the subjects of which an erasure recorded every key: others had expired before."""
        secret = read_secret(self._bed.lake)
        done = {each for erasure in read_erasures(self._bed.lake) for each in erasure.tokens}
        return [] if secret is None else [each for each in self._subjects if each.tokens(secret) <= done]

    def _require_gone(self, when: str, values: list[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="auditlake-torture-") as folder:
            for file, found in found_in(_on_disk(self._bed.lake, Path(folder)), tuple(values)).items():
                self._bed.fail(f"{file} has {len(found)} erased values {when}")


def _on_disk(lake: Lake, folder: Path) -> Lake:
    """Return the lake, copied from its bucket if it is in one."""
    root: Place = lake.root
    if not isinstance(root, Remote):
        return lake
    for key in objects.list_keys(root.bucket, f"{root.key}/"):
        file = folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(objects.get(root.bucket, key).content)
    return Lake(folder)
