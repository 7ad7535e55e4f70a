"""PostgreSQL's own tests as a workload: run their SQL beneath `follow`, then compare the lake with PostgreSQL.

    python -m tests.torture.regression --source POSTGRES/src/test [--files alter_table,triggers] [--no-trigger]
                                       [--no-spark] [--pauses N] [--keep FOLDER]

The source tree of PostgreSQL is not part of this repository; any major version will do, because what a server refuses
changes nothing.

1. A database gets a publication FOR ALL TABLES, and an event trigger of its own that gives each table without a
   primary key REPLICA IDENTITY FULL, so that its rows can be changed, and each partition the identity of its table.
2. psql runs the files of the regression suite in the order of its schedule, and what the subscription suite sends to
   its publishers, while `follow` captures, copies and applies. Functions in C of the suite do not exist.
3. After each file nobody writes, and every table's columns and rows are recorded with the LSN.
4. `follow` runs to the end. `verify` compares lake and source, and each table that the lake holds is asked for as of
   the end of each file in which it changed: no answer may be wrong.

With --no-spark, `capture` runs instead of `follow`, `bootstrap` copies new tables after each file, and the answers come
from the changes. Tables that cannot be followed are left out.

Most tables are changed and dropped within the second after their creation, before they can be copied. With --pauses N
psql waits for the copy, up to N times in each file, so that changes and schema changes after that are streamed. Each
pause takes 2 to 12 seconds.

Exit code 0 if no answer is wrong and `verify` finds no difference; 7 of `verify`, a table that cannot be verified, is
counted in the report.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from glob import escape
from pathlib import Path

import psycopg
from psycopg import sql

from auditlake.lake.layout import Lake
from auditlake.snapshot.bootstrap import Target
from auditlake.snapshot.new_tables import find_new
from auditlake.snapshot.plan import survey
from auditlake.source.catalog import FollowedTable
from auditlake.source.connection import connect
from auditlake.source.preflight import check_table
from tests import command
from tests.crash.killed import SPARK
from tests.running import await_true
from tests.server import Server, chosen_version, install_trigger, installation_of
from tests.shape_oracle import Moment, Verdict, ask_python, compare, observe
from tests.torture.postgres_suites import scheduled, sent_to_publishers, with_pauses

_SETTINGS = {"max_connections": "60", "max_prepared_transactions": "20", "statement_timeout": "60s"}
_FILE_S, _STARTED_S, _STOP_S, _VERIFY_S, _POLL_S = 180, 300, 600, 3600, 0.01
_COPIED_S, _ALL_COPIED_S = 60, 600
_DONE, _BUG, _UNVERIFIED = 0, 1, 7
_NAMED = 100
_SETTLED = {0, 3}  # 3: a table is parked
_EVERYTHING = "create publication auditlake for all tables with (publish_via_partition_root = true{})"
_STORED_GENERATED = ", publish_generated_columns = stored"
_STORED_GENERATED_SINCE = 18
_IDENTITY = """
create schema testbed;
create function testbed.identity() returns event_trigger language plpgsql as $$
declare made record;
begin
  for made in select c.oid::regclass as name from pg_event_trigger_ddl_commands() d join pg_class c on c.oid = d.objid
    where c.relkind in ('r', 'p') and c.relpersistence = 'p' and c.relreplident = 'd'
      and not exists (select from pg_index where indrelid = c.oid and indisprimary and indimmediate)
  loop
    begin
      execute format('alter table %s replica identity full', made.name);
    exception when others then null;
    end;
  end loop;
  for made in select p.oid::regclass as name
    from pg_event_trigger_ddl_commands() d join pg_class c on c.oid = d.objid and c.relkind = 'p',
         pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid
    where c.relreplident = 'd' and p.relreplident = 'f' and not c.relispartition
      and exists (select from pg_index where indrelid = c.oid and indisprimary and indimmediate)
  loop
    begin
      execute format('alter table %s replica identity default', made.name);
    exception when others then null;
    end;
  end loop;
end $$;
create event trigger testbed on ddl_command_end
  when tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE') execute function testbed.identity();
grant usage on schema testbed to public;
"""
_HEARTBEAT = {"AUDITLAKE_HEARTBEAT_S": "0.5"}
"""A copy waits until capture has passed its snapshot, which takes ten seconds while nobody writes."""
_READ = "select 1 from pg_replication_slots where active and not temporary"
"""Whether the stage reads the slot: until then, a `bootstrap` of new tables would capture in its place."""
_SCHEMAS = """
select nspname from pg_namespace
 where nspname !~ '^pg_' and nspname not in ('information_schema', 'auditlake', 'testbed') order by 1
"""
_PREPARED = "select gid from pg_prepared_xacts where database = current_database()"
_NEWEST = "select max(oid)::bigint from pg_class where relkind in ('r', 'p') and relpersistence = 'p'"


@dataclass
class Evidence:
    """What happened: files with their seconds, statements that failed, states by file, tables that were left out."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)

    def observe(self, dsn: str, file: str) -> None:
        """Record the state after a file."""
        with closing(psycopg.connect(dsn, autocommit=True)) as conn:
            for (prepared,) in conn.execute(_PREPARED).fetchall():  # no slot can be created beside one
                conn.execute(sql.SQL("rollback prepared {}").format(sql.Literal(prepared)))
            schemas = [name for (name,) in conn.execute(_SCHEMAS).fetchall()]
            self.moments.append(_sharing(self.moments, observe(conn, schemas, file)))
        print(f"{file} {self.seconds.get(file, 0):.1f} s, {self.failed.get(file, 0)} errors", flush=True)  # noqa: T201


def _sharing(moments: Sequence[Moment], new: Moment) -> Moment:
    """Replace the tables that did not change by those of the last moment: all moments are kept in memory."""
    known = moments[-1].tables if moments else {}
    shared = {name: known[name] if known.get(name) == each else each for name, each in new.tables.items()}
    return Moment(new.lsn, new.after, shared)


@contextmanager
def _followed(dsn: str, lake: Lake, log: Path, stage: str) -> Iterator[None]:
    """Run a stage during the block, which must not end before."""
    line: list[str | Path] = ["--source", dsn, "--lake", lake.root]
    with log.open("a") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "auditlake", stage, *map(str, line)],
            env={**os.environ, **SPARK, **_HEARTBEAT},
            stdout=output,
            stderr=output,
        )
        try:
            with closing(psycopg.connect(dsn, autocommit=True)) as conn:
                await_true(lambda: process.poll() is not None or conn.execute(_READ).fetchone(), _STARTED_S)
            yield
            ended = process.poll()
            process.terminate()
            process.wait(_STOP_S)
        finally:
            process.kill()
    if ended is not None:
        raise SystemExit(f"{stage} ended with {ended}:\n{log.read_text()[-3000:]}")


def _variables(suite: Path, folder: Path) -> dict[str, str]:
    """Return the environment that pg_regress gives to psql."""
    return {
        **os.environ,
        "PG_ABS_SRCDIR": str(suite),
        "PG_ABS_BUILDDIR": str(folder),
        "PG_LIBDIR": str(folder),
        "PG_DLSUFFIX": ".so",
        "PGTZ": "America/Los_Angeles",
        "PGDATESTYLE": "Postgres, MDY",
    }


def _await_end(process: "subprocess.Popen[bytes]", asked: Path, pause: Callable[[], None]) -> None:
    """Wait for the end of psql, and answer when it asks for a pause; kill it if it takes too long without them."""
    left_s = float(_FILE_S)
    while process.poll() is None and left_s > 0:
        time.sleep(_POLL_S)
        left_s -= _POLL_S
        if asked.exists():
            pause()
            asked.unlink()
    process.kill()
    process.wait()
    asked.unlink(missing_ok=True)


def _asked(folder: Path) -> Path:
    """Return the file by whose creation psql asks for a pause, and by whose removal it goes on."""
    return folder / "pause"


def _paused(path: Path, folder: Path, limit: int) -> Path:
    """Write a file with pauses after the creation of tables, so that the changes after that are streamed."""
    asked = _asked(folder)
    text = path.read_bytes().decode("latin-1")
    copy = folder / "paused" / path.name
    copy.parent.mkdir(exist_ok=True)
    wait = f"\\! touch {asked}; while [ -e {asked} ]; do sleep 0.02; done"
    copy.write_bytes(with_pauses(text, wait, limit).encode("latin-1"))
    return copy


def _wanted(moments: Sequence[Moment]) -> Iterator[Moment]:
    """Return each moment with the tables that changed in its file, and the last one whole."""
    before: Moment | None = None
    for moment in moments:
        known = before.tables if before else {}
        shown = {
            name: each for name, each in moment.tables.items() if each.columns
        }  # Arrow has no rows without columns
        changed = {name: each for name, each in shown.items() if known.get(name) != each}
        yield Moment(moment.lsn, moment.after, shown if moment is moments[-1] else changed)
        before = moment


def _compare(lake: Lake, moments: Sequence[Moment], verdict: Verdict) -> None:
    for moment in _wanted(moments):
        compare(lake, [moment], ask_python, verdict)


@dataclass(frozen=True)
class Step:
    """A part of the workload; `run` gets a function that waits for copies, and returns the number of errors."""

    name: str
    run: Callable[[Callable[[], None]], int]


@dataclass(frozen=True)
class Mode:
    """With the DDL trigger; with Spark, so `follow` and `verify`; `pauses` in which psql waits for copies, by file."""

    trigger: bool
    spark: bool
    pauses: int


@dataclass(frozen=True)
class Campaign:
    """A server with a database, its lake, and the folder of logs."""

    server: Server
    dsn: str
    folder: Path
    mode: Mode

    @property
    def lake(self) -> Lake:
        return Lake(self.folder / "lake")

    @property
    def line(self) -> list[str | Path]:
        """The options that name source and lake."""
        return ["--source", self.dsn, "--lake", self.lake.root]

    def prepare(self) -> None:
        """Create the publication and the event triggers."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            stored = _STORED_GENERATED if chosen_version() >= _STORED_GENERATED_SINCE else ""
            conn.execute(_EVERYTHING.format(stored).encode())
            conn.execute(_IDENTITY)
        if self.mode.trigger:
            install_trigger(self.dsn)

    def work(self, steps: Iterable[Step], evidence: Evidence) -> None:
        """Run the steps beneath the lake's processes, and record the state after each."""
        begun = command.run(["bootstrap", *self.line], SPARK)
        if begun.code != _DONE:
            raise SystemExit(begun.stderr)
        with _followed(self.dsn, self.lake, self.folder / "follow.log", "follow" if self.mode.spark else "capture"):
            newest = _Newest(self.dsn)
            for step in steps:
                start = time.monotonic()
                evidence.failed[step.name] = step.run(lambda: self.copy(evidence, newest))
                evidence.seconds[step.name] = time.monotonic() - start
                if self.mode.pauses or not self.mode.spark:
                    self.copy(evidence, newest)
                evidence.observe(self.dsn, step.name)
            if self.mode.spark:
                self.await_copies(evidence, _ALL_COPIED_S)
            evidence.observe(self.dsn, "the end")

    def await_copies(self, evidence: Evidence, timeout_s: float) -> None:
        """Wait until `follow` has copied the new tables; not for one that is locked all the time."""
        with suppress(AssertionError):
            await_true(lambda: not self.new(evidence), timeout_s)

    def copy(self, evidence: Evidence, newest: "_Newest") -> None:
        """Copy new tables, or wait until `follow` has, if there are any that can be followed."""
        if not newest.moved():
            return
        if self.mode.spark:
            self.await_copies(evidence, _COPIED_S)
            return
        self.new(evidence)
        copied = command.run_here(["bootstrap", *self.line, *_patterns(evidence.left_out)])
        if copied.code != _DONE:
            print(f"bootstrap ended with {copied.code}: {copied.stderr[-1000:]}", flush=True)  # noqa: T201
        evidence.broken += [copied.stderr] if copied.code == _BUG else []

    def new(self, evidence: Evidence) -> list[FollowedTable]:
        """Return the tables without a history that can be followed, and record those that cannot."""
        with closing(connect(self.dsn)) as conn:
            target = Target(self.dsn, self.lake, "auditlake", "auditlake", None)
            found = find_new(conn, target)
            chosen = survey(conn, None, "auditlake", "auditlake").chosen
            obstacles = {table.name: check_table(table, chosen_version()) for table in (*chosen, *found)}
        evidence.left_out = {escape(f"{n.schema}.{n.table}") for n, obstacle in obstacles.items() if obstacle}
        return [table for table in found if not obstacles[table.name]]

    def settle(self, evidence: Evidence) -> int | None:
        """Bring everything into the lake; return the exit code of `verify`, None without Spark."""
        stage = "follow" if self.mode.spark else "capture"
        settled = command.run([stage, "--until-current", *self.line], SPARK, timeout_s=_VERIFY_S)
        print(settled.stderr[-6000:])  # noqa: T201 - this is its report
        evidence.broken += [] if settled.code in _SETTLED else [settled.stderr]
        if not self.mode.spark:
            return None
        with (
            _followed(self.dsn, self.lake, self.folder / "follow-verify.log", "follow"),
            command.start(["verify", *self.line], SPARK) as verifying,
        ):
            found, messages = verifying.communicate(timeout=_VERIFY_S)
        print(found[-6000:] + messages[-6000:])  # noqa: T201
        return verifying.returncode


class _Newest:
    """The newest table of a database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._oid: object = None

    def moved(self) -> bool:
        """Whether tables were created since the last call."""
        with closing(psycopg.connect(self._dsn, autocommit=True)) as conn:
            row = conn.execute(_NEWEST).fetchone()
        before, self._oid = self._oid, row and row[0]
        return before != self._oid


def _patterns(left_out: Iterable[str]) -> list[str]:
    """Return the options that leave out tables which cannot be followed, as the hint of `bootstrap` advises."""
    return [option for name in sorted(left_out) for option in ("--table", f"!{name}")]


@dataclass(frozen=True)
class Suite:
    """Files of SQL as steps, as psql runs them in the folder of a campaign."""

    campaign: Campaign
    folder: Path

    def step(self, path: Path) -> Step:
        """Return the step that runs a file."""
        limit = self.campaign.mode.pauses
        given = _paused(path, self.campaign.folder, limit) if limit else path
        return Step(path.stem, lambda pause: self._run(given, pause))

    def _run(self, path: Path, pause: Callable[[], None]) -> int:
        """Run a file with psql; return the number of its errors, which are part of the tests."""
        folder = self.campaign.folder
        output = folder / f"{path.stem}.out"
        line: list[str | Path] = [self.campaign.server.bin / "psql", "-X", "-q", "-d", self.campaign.dsn, "-f", path]
        with output.open("wb") as out:
            variables = _variables(self.folder, folder)
            process = subprocess.Popen(line, env=variables, cwd=folder, stdout=out, stderr=out)
            _await_end(process, _asked(folder), pause)
        return output.read_bytes().count(b"ERROR:  ")


def run(source: Path, chosen: Sequence[str], folder: Path, mode: Mode) -> int:
    """Run the files and compare; print a report and return the exit code."""
    files = [*scheduled(source / "regress"), *sent_to_publishers(source / "subscription", folder)]
    wanted = [path for path in files if not chosen or path.stem in {*chosen, "test_setup"}]
    return run_steps(folder, mode, lambda campaign: map(Suite(campaign, source / "regress").step, wanted))


def run_steps(folder: Path, mode: Mode, steps: Callable[[Campaign], Iterable[Step]]) -> int:
    """Run steps on a new server and compare; print a report and return the exit code."""
    evidence, verdict = Evidence(), Verdict()
    version = chosen_version()
    with Server(version, settings=_SETTINGS, installation=installation_of(version)) as server:
        campaign = Campaign(server, server.dsn(server.create_database("regression")), folder, mode)
        campaign.prepare()
        campaign.work(steps(campaign), evidence)
        verified = campaign.settle(evidence)
    _compare(campaign.lake, evidence.moments, verdict)
    facts = {
        "server": version,
        **asdict(mode),
        "steps": len(evidence.seconds),
        "tables": len({name for moment in evidence.moments for name in moment.tables}),
        "errors that the steps expect or that come of missing functions": sum(evidence.failed.values()),
        "seconds": round(sum(evidence.seconds.values())),
        "left out": len(evidence.left_out),
        "verify": verified,
        "states": str(verdict),
        "refused": dict(verdict.refused.most_common()),
        "refused for": {reason: _shortened(verdict.names[reason]) for reason, _ in verdict.refused.most_common()},
        "wrong": verdict.wrong,
        "broken": evidence.broken,
    }
    print(json.dumps(facts, indent=2), flush=True)  # noqa: T201
    return 1 if verdict.wrong or evidence.broken or verified not in {None, _DONE, _UNVERIFIED} else 0


def _shortened(names: Mapping[str, int]) -> str:
    """Return the tables with the number of their refusals; of many, the first."""
    listed = [f"{name} {count}" for name, count in sorted(names.items())[:_NAMED]]
    return ", ".join(listed + ([f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="run PostgreSQL's own tests beneath follow, then compare")
    parser.add_argument("--source", type=Path, required=True, help="src/test of a source tree of PostgreSQL")
    parser.add_argument("--files", default="", help="only these tests, without .sql, separated by commas")
    parser.add_argument("--no-trigger", action="store_true", help="without the DDL trigger")
    parser.add_argument("--no-spark", action="store_true", help="capture and bootstrap only, without a JVM; no verify")
    help_of_pauses = "let psql wait so often in each file for the copy of the tables that it has created"
    parser.add_argument("--pauses", type=int, default=0, metavar="N", help=help_of_pauses)
    parser.add_argument("--keep", type=Path, help="a folder for lake and logs, which is not removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="auditlake-regression-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        (folder / "results").mkdir(exist_ok=True)
        (folder / "results").chmod(0o777)  # the server writes there as another user
        chosen = [name for name in given.files.split(",") if name]
        mode = Mode(trigger=not given.no_trigger, spark=not given.no_spark, pauses=given.pauses)
        sys.exit(run(given.source.absolute(), chosen, folder, mode))


if __name__ == "__main__":
    main()
