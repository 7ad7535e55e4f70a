"""The oracle campaign: a live database, a lake that is made and followed, and everything that can go wrong meanwhile.

    python -m tests.torture.campaign --seconds 120 [--seed N]

Bootstrap is killed after its effects, then capture and apply go on side by side, as processes that are killed at random
and after each of their effects, while the server crashes, the network is cut or deaf, the disk fills up and answers of
commits are lost. All the while several connections write to tables of every kind, and PostgreSQL is asked for its state
at exact LSNs. Afterwards the last runs are left alone, and the lake is compared with what PostgreSQL said (`checks`).

The seed decides what the workers do and which fault comes when; which moment a fault hits is up to the machine.
Exit code 0 where everything held.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import CalledProcessError

import psycopg

from auditlake.errors import AuditlakeError
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from tests import oracle
from tests.crash.killed import SPARK
from tests.proxy import Proxy
from tests.server import Server, chosen_version
from tests.torture import checks
from tests.torture.apply_faults import ApplyFaults
from tests.torture.capture_faults import CaptureFaults
from tests.torture.schema import DDL, LEDGER, TABLES
from tests.torture.site import Disk, Process, Site, expect
from tests.torture.work import LOST, Worker

_SETTINGS = {"wal_sender_timeout": "6s", "logical_decoding_work_mem": "64kB", "max_connections": "60"}
_WORKERS = 4
_MOMENTS = 60
_BEFORE_JVM = (After.MANIFEST_WRITTEN, After.MANIFEST, After.PUBLICATION, After.MEMBERSHIP, After.SLOT, After.START)
_IN_COPY = (After.HISTORY_CREATED, After.FILES_COPIED, After.TABLE_COPIED)
_KILLED = -9
_LONG_S = 900.0


class Observer(threading.Thread):
    """Asks PostgreSQL for its state every now and then."""

    def __init__(self, site: Site, seconds: float) -> None:
        super().__init__(name="observer", daemon=True)
        self._site = site
        self._interval_s = max(1.0, seconds / _MOMENTS)
        self.moments: list[oracle.Moment] = []

    def run(self) -> None:
        while not self._site.stop.wait(self._interval_s):
            with suppress(*LOST, AuditlakeError):  # the server may be away
                self.moments.append(oracle.take_moment(self._site.dsn, TABLES))


def bootstrap(site: Site) -> None:
    """Bootstrap, killed after its effects and then once more to the end."""
    chance = random.Random(f"{site.seed}/bootstrap")  # noqa: S311 - no secret
    line = site.arguments("bootstrap", "--table", f"!public.{LEDGER}")
    for place in [*_BEFORE_JVM, *chance.sample(_IN_COPY, 2)]:
        times = chance.randint(1, 3) if place in _IN_COPY else 1
        process = Process(line, place, times=times)
        code = process.ended(_LONG_S)
        # Where the run before had come that far, this one does not pass the place again, and ends well.
        expect(site, process, code, (_KILLED, 0))
        process.kill()
        site.count(f"bootstrap killed after {place}" if code == _KILLED else f"bootstrap did not pass {place}")
    _finish(site, line)


def _finish(site: Site, line: list[str | Path]) -> None:
    process = Process(line)
    expect(site, process, process.ended(_LONG_S) or process.process.poll(), (0,))
    if process.process.poll() is None:
        site.fail(f"{line[0]} did not end: {process.said}")
        process.kill()


def torment(site: Site, seconds: float) -> list[oracle.Moment]:
    """Let faults and work go on for so long; give what PostgreSQL said meanwhile."""
    observer = Observer(site, seconds)
    threads: list[threading.Thread] = [observer, CaptureFaults(site), ApplyFaults(site)]
    for thread in threads:
        thread.start()
    site.stop.wait(seconds)
    site.stop.set()
    for thread in threads:
        thread.join()
    return observer.moments


def settle(site: Site) -> None:
    """Bring everything into the histories, undisturbed."""
    _finish(site, ["capture", "--until-current", "--source", site.dsn, "--lake", site.lake.root])
    _finish(site, ["apply", "--until-current", "--lake", site.lake.root])


def ask_spark(site: Site, moments: list[oracle.Moment]) -> int:
    """Compare some moments as `auditlake.read` gives them; needs a JVM in this process."""
    import auditlake  # noqa: PLC0415  # only here is Spark needed
    from auditlake.lake.session import spark_session  # noqa: PLC0415

    spark = spark_session({f"spark.{name}": value for name, value in json.loads(SPARK["AUDITLAKE_SPARK"]).items()})
    compared = 0
    for moment in moments:
        for table in TABLES:
            rows = auditlake.read(spark, site.lake.root, f"public.{table}", as_of=str(moment.lsn)).count()
            if rows != moment.states[table].total():
                site.fail(f"spark: {table} as of {moment.lsn} has {rows} rows")
            compared += 1
    return compared


def run(seconds: float, seed: str) -> int:
    """Run a campaign and report it; the exit code."""
    with ExitStack() as held:
        site = _site(held)
        site.seed = seed
        begun = time.monotonic()
        workers_stop = threading.Event()
        workers = [Worker(site.dsn, seed, number, workers_stop) for number in range(_WORKERS)]
        for worker in workers:
            worker.start()
        bootstrap(site)
        moments = torment(site, seconds)
        workers_stop.set()
        for worker in workers:
            worker.join()
        moments.append(oracle.take_moment(site.dsn, TABLES))
        settle(site)
        evidence = checks.Evidence(site.dsn, site.lake, moments)
        compared, failed = checks.failures([*checks.OF_CAPTURE, *checks.OF_APPLY], evidence)
        for name, what in failed.items():
            site.fail(f"check {name}: {what}")
        facts = {
            "seed": seed,
            "seconds": round(time.monotonic() - begun),
            "transactions": sum(worker.done for worker in workers),
            "moments": len(moments),
            "compared": compared,
            "seen": dict(sorted(site.seen.items())),
            "broken": site.broken,
        }
        print(json.dumps(facts, indent=2), flush=True)  # noqa: T201 - this is its report
        chosen = random.Random(seed).sample(moments, min(2, len(moments)))  # noqa: S311 - no secret
        print(f"spark compared {ask_spark(site, chosen)} states", flush=True)  # noqa: T201
        return 1 if site.broken else 0


def _site(held: ExitStack) -> Site:
    server = held.enter_context(Server(chosen_version(), settings=_SETTINGS))
    database = server.create_database()
    with psycopg.connect(server.dsn(database)) as conn:
        conn.execute(DDL)
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="auditlake-torture-")))
    proxy = held.enter_context(Proxy(server.dsn(database)))
    site = Site(server, proxy, database, Lake(folder / "disk" / "lake"), "")
    try:
        site.disk = held.enter_context(Disk(folder / "disk"))
    except (CalledProcessError, OSError):
        print("no right to mount: the disk is not filled up", flush=True)  # noqa: T201
    return site


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="kill, cut and fill up, then compare with PostgreSQL")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", default="")
    chosen = parser.parse_args()
    seed = chosen.seed or str(random.SystemRandom().randrange(10**6))
    print(f"seed {seed}", flush=True)  # noqa: T201
    sys.exit(run(chosen.seconds, seed))


if __name__ == "__main__":
    main()
