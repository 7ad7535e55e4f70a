"""Torture campaign: keep a lake up to date from a live database under every fault, then compare it with PostgreSQL.

    python -m tests.torture.campaign --seconds 120 [--seed N] [--store s3]

1. Several connections change tables of every kind, until step 4.
2. Bootstrap runs with faults of its own (`bootstrap_faults`).
3. Capture, apply, follow and maintain run as processes, which faults kill, pause, disconnect and starve
   (`capture_faults`, `apply_faults`). Meanwhile PostgreSQL reports its state at exact LSNs, a column changes its type
   so that its table must be parked, one session changes the schema of its own tables at random (`tests.random_ddl`),
   and every log entry is watched: none may be replaced. With `--store s3` the lake is in a bucket of a local
   server, and a share of all requests to it is lost, answered with an error or slowly, or takes effect unanswered.
   The lake is sealed, and from one table versions expire and rows are erased (`removals`).
4. Capture and apply run undisturbed to the end, and the lake is compared with what PostgreSQL reported (`checks`).

The seed determines the changes, the order of faults and whether the DDL trigger is installed; the moment at which a
fault strikes depends on the machine.
Exit code 0 if every promise held.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from typing import cast

import psycopg

from auditlake.errors import AuditlakeError
from auditlake.lake.layout import Lake
from auditlake.store.objects import settings_for_spark
from auditlake.store.place import parse_url
from tests import oracle, shape_oracle
from tests.crash.killed import SPARK
from tests.faulty_store import FaultyStore
from tests.proxy import Proxy
from tests.random_ddl import SCHEMAS, SETUP, RandomDdl
from tests.s3_server import s3_server
from tests.server import Server, chosen_version, install_trigger
from tests.torture import checks
from tests.torture.apply_faults import ApplyFaults
from tests.torture.bootstrap_faults import bootstrap, finish
from tests.torture.capture_faults import CaptureFaults
from tests.torture.removals import SETUP as SETUP_OF_REMOVALS
from tests.torture.removals import Removals
from tests.torture.schema import DDL, RETYPE, RETYPED, TABLES
from tests.torture.testbed import Disk, Testbed
from tests.torture.work import LOST, Worker

_SETTINGS = {"wal_sender_timeout": "6s", "logical_decoding_work_mem": "64kB", "max_connections": "60"}
_WORKERS = 4
_MOMENTS = 60
_RETYPED_AFTER = 0.3
_WATCH_S, _LIST_S = 0.5, 3.0
_SPOILED = 0.04
"""Share of the requests to an object store that meet a fault."""
_SCHEMA_PAUSES_S, _SHAPE_MOMENTS = (0.1, 1, 3, 15), 60
_DONE, _CHECK_FAILED = 0, 3
_ANOTHER = "select from pg_stat_activity where application_name = 'schema changes' and pid <> pg_backend_pid()"


class Observer(threading.Thread):
    """Asks PostgreSQL for its state at regular intervals."""

    def __init__(self, bed: Testbed, seconds: float) -> None:
        super().__init__(name="observer", daemon=True)
        self._bed = bed
        self._interval_s = max(1.0, seconds / _MOMENTS)
        self.moments: list[oracle.Moment] = []

    def run(self) -> None:
        while not self._bed.stop.wait(self._interval_s):
            with suppress(*LOST, AuditlakeError):  # the server may be down
                self.moments.append(oracle.take_moment(self._bed.dsn, TABLES))


class EntryWatch(threading.Thread):
    """Remembers the id of every log entry of the lake, by its file."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__(name="entries", daemon=True)
        self._bed = bed
        self._ids: dict[str, str] = {}

    def run(self) -> None:
        while not self._bed.stop.wait(_WATCH_S if self._bed.store is None else _LIST_S):
            self._ids |= self._bed.log_entries(self._ids)

    def verify(self) -> int:
        """Check that no entry was replaced; return the number of entries."""
        now = self._bed.log_entries()
        for entry, commit_id in self._ids.items():
            if now.get(entry, commit_id) != commit_id:  # it is absent if it has expired
                self._bed.fail(f"{entry} was replaced")
        return len(self._ids | now)


class Retyping(threading.Thread):
    """Changes a column's type during the campaign, so that its table must be parked."""

    def __init__(self, bed: Testbed, seconds: float) -> None:
        super().__init__(name="retyping", daemon=True)
        self._bed = bed
        self._delay_s = seconds * _RETYPED_AFTER

    def run(self) -> None:
        self._bed.stop.wait(self._delay_s)
        while not self._bed.stop.is_set() and not self._bed.retyped.is_set():
            with suppress(*LOST), closing(psycopg.connect(self._bed.dsn, autocommit=True)) as conn:
                conn.execute("set lock_timeout = '5s'")
                conn.execute(RETYPE)
                conn.execute(f"insert into {RETYPED} values (-1, 'a text')")
                self._bed.retyped.set()


class SchemaChanges(threading.Thread):
    """Changes the schema of its own tables at random, and records their columns and rows after each step."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__(name="schema", daemon=True)
        self._bed = bed
        self._chance = random.Random(f"{bed.seed}/schema")  # noqa: S311 - no secret
        self.ddl: RandomDdl | None = None
        self.moments: list[shape_oracle.Moment] = []

    def run(self) -> None:
        while not self._bed.stop.is_set():
            with suppress(*LOST), closing(psycopg.connect(self._bed.dsn, autocommit=True)) as conn:
                self._await_alone(conn)
                conn.execute("set lock_timeout = '5s'")
                self._change(conn)

    def _await_alone(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        """Wait for the end of a former session, whose last commit may be under way."""
        conn.execute("set application_name = 'schema changes'")
        while conn.execute(_ANOTHER).fetchall() and not self._bed.stop.wait(_WATCH_S):
            pass

    def _change(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        if self.ddl is None:
            self.ddl = RandomDdl(conn, self._chance)
        self.ddl.use(conn)
        done = "a new session"
        while not self._bed.stop.is_set():
            self.moments.append(shape_oracle.observe(conn, SCHEMAS, done))
            self._bed.stop.wait(self._chance.choice(_SCHEMA_PAUSES_S))
            done = self.ddl.step()


def torment(
    bed: Testbed, seconds: float, changes: SchemaChanges, removals: Removals
) -> tuple[list[oracle.Moment], EntryWatch]:
    """Inject faults for so many seconds; return the states that PostgreSQL reported, and the log entries seen."""
    observer, entries = Observer(bed, seconds), EntryWatch(bed)
    faults = [CaptureFaults(bed), ApplyFaults(bed), Retyping(bed, seconds)]
    threads: list[threading.Thread] = [observer, entries, changes, removals, *faults]
    for thread in threads:
        thread.start()
    bed.stop.wait(seconds)
    bed.stop.set()
    for thread in threads:
        thread.join()
    return observer.moments, entries


def settle(bed: Testbed) -> None:
    """Bring everything into the histories, undisturbed; a parked table is reported by exit code 3."""
    if bed.store is not None:
        bed.store.share = 0.0
    finish(bed, ["capture", "--until-current", "--source", bed.dsn, "--lake", bed.lake.root])
    finish(bed, ["apply", "--until-current", "--lake", bed.lake.root], (_DONE, _CHECK_FAILED))


def compare_shapes(bed: Testbed, moments: list[shape_oracle.Moment]) -> shape_oracle.Verdict:
    """Ask for the tables of random schema changes as of moments chosen by the seed; an answer must be right."""
    verdict = shape_oracle.Verdict()
    chosen = random.Random(bed.seed).sample(moments, min(_SHAPE_MOMENTS, len(moments)))  # noqa: S311 - no secret
    shape_oracle.compare(bed.lake, chosen, shape_oracle.ask_sql("duckdb"), verdict)
    for wrong in verdict.wrong:
        bed.fail(f"schema changes: {wrong}")
    return verdict


def compare_through_spark(bed: Testbed, moments: list[oracle.Moment]) -> int:
    """Compare the rows that `auditlake.read` returns at some moments; needs a JVM in this process."""
    import auditlake  # noqa: PLC0415  # only here is Spark needed
    from auditlake.spark.session import spark_session  # noqa: PLC0415

    settings = {f"spark.{name}": value for name, value in json.loads(SPARK["AUDITLAKE_SPARK"]).items()}
    spark = spark_session({**settings, **settings_for_spark(bed.lake.root)})
    compared = 0
    for moment in moments:
        for table, state in moment.states.items():
            rows = auditlake.read(spark, bed.lake.root, f"public.{table}", as_of=str(moment.lsn)).count()
            if rows != state.total():
                bed.fail(f"spark: {table} as of {moment.lsn} has {rows} rows, expected {state.total()}")
            compared += 1
    return compared


def run(seconds: float, seed: str, store: str) -> int:
    """Run a campaign and print its report; return the exit code."""
    with ExitStack() as held:
        bed = _testbed(held, seed, store)
        begun = time.monotonic()
        workers_stop, no_truncate = threading.Event(), threading.Event()
        workers = [Worker(bed.dsn, seed, number, workers_stop, no_truncate) for number in range(_WORKERS)]
        for worker in workers:
            worker.start()
        bootstrap(bed, no_truncate)
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="auditlake-torture-")))
        changes, removals = SchemaChanges(bed), Removals(bed, folder / "evidence")
        moments, entries = torment(bed, seconds, changes, removals)
        workers_stop.set()
        for worker in workers:
            worker.join()
        moments.append(oracle.take_moment(bed.dsn, TABLES))
        settle(bed)
        removed = removals.verify(partial(settle, bed))
        parked = [RETYPED] if bed.retyped.is_set() else []
        evidence = checks.Evidence(bed.dsn, bed.lake, moments, parked=parked, archive=removals.archive)
        compared, failed = checks.failures([*checks.OF_CAPTURE, *checks.OF_APPLY], evidence)
        for name, what in failed.items():
            bed.fail(f"check {name}: {what}")
        compared |= {"entries": entries.verify()}
        chosen = random.Random(seed).sample(evidence.known, min(2, len(moments)))  # noqa: S311 - no secret
        compared["spark"] = compare_through_spark(bed, chosen)
        verdict = compare_shapes(bed, changes.moments)
        facts = {
            "seed": seed,
            "seconds": round(time.monotonic() - begun),
            "transactions": sum(worker.done for worker in workers),
            "moments": len(moments),
            "compared": compared,
            "removed": removed,
            "schema changes": {
                "trigger": _with_trigger(seed),
                "steps": len(changes.moments),
                "made": dict(sorted(changes.ddl.made.items())) if changes.ddl else {},
                "right": verdict.right,
                "refused": dict(verdict.refused.most_common()),
            },
            "faults": dict(sorted(bed.counts.items())),
            "requests spoiled": dict(sorted(bed.store.made.items())) if bed.store else {},
            "failures": bed.failures,
        }
        print(json.dumps(facts, indent=2), flush=True)  # noqa: T201 - this is its report
        return 1 if bed.failures else 0


def _with_trigger(seed: str) -> bool:
    return random.Random(f"{seed}/trigger").random() < 0.5  # noqa: S311 - no secret; every other campaign


def _testbed(held: ExitStack, seed: str, store: str) -> Testbed:
    server = held.enter_context(Server(chosen_version(), settings=_SETTINGS))
    database = server.create_database()
    with psycopg.connect(server.dsn(database)) as conn:
        conn.execute(DDL)
        conn.execute(SETUP)
        conn.execute(SETUP_OF_REMOVALS)
    if _with_trigger(seed):
        install_trigger(server.dsn(database))
    proxy = held.enter_context(Proxy(server.dsn(database)))
    if store == "s3":
        lake = Lake(cast("Path", parse_url(f"{held.enter_context(s3_server())}/lake")))
        faulty = held.enter_context(FaultyStore(os.environ["AWS_ENDPOINT_URL"], _SPOILED, f"{seed}/store"))
        return Testbed(server, proxy, database, lake, seed, store=faulty)
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="auditlake-torture-")))
    bed = Testbed(server, proxy, database, Lake(folder / "disk" / "lake"), seed)
    try:
        bed.disk = held.enter_context(Disk(folder / "disk"))
    except (CalledProcessError, OSError):
        print("no right to mount: the disk is not filled up", flush=True)  # noqa: T201
    return bed


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="inject faults for a time, then compare the lake with PostgreSQL")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", default="")
    parser.add_argument("--store", choices=["disk", "s3"], default="disk", help="where the lake is")
    chosen = parser.parse_args()
    seed = chosen.seed or str(random.SystemRandom().randrange(10**6))
    print(f"seed {seed}", flush=True)  # noqa: T201
    sys.exit(run(chosen.seconds, seed, chosen.store))


if __name__ == "__main__":
    main()
