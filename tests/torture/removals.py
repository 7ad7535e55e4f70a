"""Sealing, retention and erasure during a campaign, on tables of their own; at the end every value is looked for.

Rows are inserted, changed and deleted, each with values that occur nowhere else: in a table with a key, and in one
without, which loses rows by a value. Meanwhile the lake is sealed and digests are signed, versions of the first table
expire at once, and deleted rows are erased by processes, of which some are killed after an effect. At the end every
erasure is finished, no byte of the lake has a value, and all digests fit.
"""

import random
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from auditlake.erasure.retention import expire
from auditlake.errors import AuditlakeError
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.ledger.verification import VerifiedDigest, verify_digests
from auditlake.messages import say
from auditlake.settings.retention_rules import RetentionPeriods
from auditlake.store import objects
from auditlake.store.place import Place, Remote
from tests.erasure_lake import found_in
from tests.expiry import AT_ONCE
from tests.ledger_lake import sealed
from tests.random_ddl import ERASED
from tests.torture.bootstrap_faults import finish
from tests.torture.testbed import Testbed, expect
from tests.torture.work import LOST

_KEYED, _LOOSE = f"{ERASED}.persons", f"{ERASED}.events"
SETUP = (
    f"create schema {ERASED}; create table {_KEYED} (id int primary key, name text, note text);"
    f" create table {_LOOSE} (id int, name text, note text); alter table {_LOOSE} replica identity full;"
)
_STEPS = (
    After.ERASURE_BEGUN,
    After.SECRETS_DESTROYED,
    After.VALUES_REWRITTEN,
    After.VALUES_ERASED,
    After.FILES_DELETED,
    After.LOG_CHECKPOINTED,
    After.LOG_FORGOTTEN,
    After.ERASURE_ENDED,
)
_PAUSE_S, _LONG_S = 2.0, 300.0
_KILLED, _DONE, _REFUSED, _LAKE, _NOT_YET = -9, 0, 3, 6, 7


class Removals(threading.Thread):
    """Writes rows, seals, expires and erases until the end of the campaign."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__(name="removals", daemon=True)
        self._bed = bed
        self._chance = random.Random(f"{bed.seed}/removals")  # noqa: S311 - no secret
        self._values: dict[tuple[str, int], list[str]] = {}
        self._left: list[tuple[str, int]] = []
        self._digests: list[VerifiedDigest] = []

    def run(self) -> None:
        while not self._bed.stop.wait(_PAUSE_S):
            with suppress(*LOST):
                self._write()
            with suppress(AuditlakeError, OSError):  # another process seals or removes, or the disk is full
                self._digests.append(sealed(self._bed.lake, f"digest {len(self._digests)}"))
            with suppress(AuditlakeError, OSError):
                expire(self._bed.lake, RetentionPeriods(((_KEYED, AT_ONCE),)), "campaign", say)
            if self._left:
                self._erase()

    def _write(self) -> None:
        table, number = self._chance.choice([_KEYED, _LOOSE]), len(self._values)
        self._values[table, number] = [f"{self._chance.getrandbits(96):024x}" for _ in range(3)]
        first, second, note = self._values[table, number]
        with closing(psycopg.connect(self._bed.dsn, autocommit=True)) as conn:
            conn.execute(f"insert into {table} values (%s, %s, %s)", (number, first, note))
            conn.execute(f"update {table} set name = %s where id = %s", (second, number))
            conn.execute(f"delete from {table} where id = %s", (number,))
        self._left.append((table, number))

    def _erase(self) -> None:
        row = self._chance.choice(self._left)
        place = self._chance.choice([None, *_STEPS])
        process = self._bed.start(self._line(*row), place, times=self._chance.randint(1, 3))
        code = process.wait(_LONG_S, self._bed.stop)
        expect(self._bed, process, code, (_KILLED, _DONE, _REFUSED, _LAKE, _NOT_YET))
        process.kill()
        if code == _DONE:
            self._left.remove(row)
        elif code == _REFUSED:
            resumed = self._bed.start(self._resume())
            expect(self._bed, resumed, resumed.wait(_LONG_S, self._bed.stop), (_DONE, _LAKE))
            resumed.kill()
        self._bed.count(f"forget ended with {code}")

    def _line(self, table: str, number: int) -> list[str | Path]:
        row = [f"{number}"] if table == _KEYED else ["--where", f"id={number}"]
        return ["forget", table, *row, "--reason", "campaign", "--lake", self._bed.lake.root]

    def _resume(self) -> list[str | Path]:
        return ["forget", "--resume", "--lake", self._bed.lake.root]

    def verify(self) -> int:
        """Finish all erasures undisturbed, and check values and digests; return the number of values."""
        finish(self._bed, self._resume())
        for row in self._left:  # _NOT_YET: its erasure had ended before the kill
            finish(self._bed, self._line(*row), (_DONE, _NOT_YET))
        self._digests.append(sealed(self._bed.lake, "last digest"))
        self._bed.count(f"{len(self._digests)} digests signed")
        proof = verify_digests(self._bed.lake, self._digests, 20)
        for each in proof.mismatches:
            self._bed.fail(f"ledger: {each}")
        values = tuple(value for of_one in self._values.values() for value in of_one)
        with tempfile.TemporaryDirectory(prefix="auditlake-torture-") as folder:
            for file, found in found_in(_on_disk(self._bed.lake, Path(folder)), values).items():
                self._bed.fail(f"{file} has {len(found)} erased values")
        return len(values)


def _on_disk(lake: Lake, folder: Path) -> Lake:
    """Return the lake, copied from its bucket if it is in one."""
    root: Place = lake.root
    if not isinstance(root, Remote):
        return lake
    for key in objects.keys(root.bucket, f"{root.key}/"):
        file = folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(objects.get(root.bucket, key).content)
    return Lake(folder)
