"""PostgreSQL's own tests as a workload: run their SQL beneath `follow`, then compare the lake with PostgreSQL.

    python -m tests.torture.regression --source POSTGRES/src/test [--files alter_table,triggers] [--no-trigger]
                                       [--no-spark] [--keep FOLDER]

The source tree of PostgreSQL is not part of this repository; any major version will do, because what a server refuses
changes nothing.

1. A database gets a publication FOR ALL TABLES, and an event trigger of its own that gives each new table without a
   primary key REPLICA IDENTITY FULL, so that its rows can be changed.
2. psql runs the files of the regression suite in the order of its schedule, and what the subscription suite sends to
   its publishers, while `follow` captures, copies and applies. Functions in C of the suite do not exist.
3. After each file nobody writes, and every table's columns and rows are recorded with the LSN.
4. `follow` runs to the end. `verify` compares lake and source, and each table that the lake holds is asked for as of
   the end of each file in which it changed: no answer may be wrong.

With --no-spark, `capture` runs instead of `follow`, `bootstrap` copies new tables after each file, and the answers come
from the changes.

Exit code 0 if no answer is wrong and `verify` finds no difference; 7 of `verify`, a table that cannot be verified, is
counted in the report.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from auditlake.lake.layout import Lake
from tests import command
from tests.crash.killed import SPARK
from tests.running import await_true
from tests.server import Server, chosen_version, install_trigger
from tests.shape_oracle import Moment, Verdict, ask_python, compare, observe

_SETTINGS = {"max_connections": "60", "max_prepared_transactions": "4", "statement_timeout": "60s"}
_FILE_S, _STOP_S, _VERIFY_S = 180, 600, 3600
_DONE, _BUG, _UNVERIFIED = 0, 1, 7
_SETTLED = {0, 3}  # 3: a table is parked
_EVERYTHING = "create publication auditlake for all tables with (publish_via_partition_root = true)"
_IDENTITY = """
create schema testbed;
create function testbed.identity() returns event_trigger language plpgsql as $$
declare made record;
begin
  for made in select c.oid::regclass as name from pg_event_trigger_ddl_commands() d join pg_class c on c.oid = d.objid
    where c.relkind in ('r', 'p') and c.relpersistence = 'p'
      and not exists (select from pg_index where indrelid = c.oid and indisprimary)
  loop
    begin
      execute format('alter table %s replica identity full', made.name);
    exception when others then null;
    end;
  end loop;
end $$;
create event trigger testbed on ddl_command_end when tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
  execute function testbed.identity();
grant usage on schema testbed to public;
"""
_READ = "select 1 from pg_replication_slots where active and not temporary"
"""Whether the stage reads the slot: until then, a `bootstrap` of new tables would capture in its place."""
_SCHEMAS = """
select nspname from pg_namespace
 where nspname !~ '^pg_' and nspname not in ('information_schema', 'auditlake', 'testbed') order by 1
"""
_SENT = re.compile(
    r"node_publisher->safe_psql\(\s*'postgres',\s*(?:qq?\((?P<round>.*?)\)|qq?\{(?P<curly>.*?)\}"
    r"|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')\s*\)\s*;",
    re.DOTALL,
)
_OTHERS_PUBLICATION = re.compile(r"(?i)\b(publication|subscription)\b")


@dataclass
class Evidence:
    """What happened: files with their seconds, statements that failed, states by file."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def observe(self, dsn: str, file: str) -> None:
        """Record the state after a file."""
        with closing(psycopg.connect(dsn, autocommit=True)) as conn:
            schemas = [name for (name,) in conn.execute(_SCHEMAS).fetchall()]
            self.moments.append(observe(conn, schemas, file))
        print(f"{file} {self.seconds[file]:.1f} s, {self.failed[file]} errors", flush=True)  # noqa: T201


def _scheduled(suite: Path) -> list[Path]:
    """Return the SQL files of the regression suite in the order of its schedule."""
    lines = (suite / "parallel_schedule").read_text().splitlines()
    names = [name for line in lines if line.startswith("test:") for name in line.split()[1:]]
    return [path for name in names if (path := suite / "sql" / f"{name}.sql").exists()]


def _sent_to_publishers(suite: Path, folder: Path) -> Iterator[Path]:
    """Write what each test of the subscription suite sends to its publisher as a file of SQL, in a schema of its own.

    Statements about publications are left out: the lake has its own.
    """
    for test in sorted((suite / "t").glob("*.pl")):
        sent = [next(filter(None, match.groups()), "") for match in _SENT.finditer(test.read_text())]
        kept = [each for each in sent if not _OTHERS_PUBLICATION.search(each) and "$" not in each]
        schema = f"s{test.stem[:3]}"
        path = folder / f"{test.stem}.sql"
        path.write_text(f"create schema {schema};\nset search_path = {schema};\n" + ";\n".join(kept) + ";\n")
        yield path


@contextmanager
def _followed(dsn: str, lake: Lake, log: Path, stage: str) -> Iterator[None]:
    line: list[str | Path] = ["--source", dsn, "--lake", lake.root]
    begun = command.run(["bootstrap", *line], SPARK)
    if begun.code != 0:
        raise SystemExit(begun.stderr)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "auditlake", stage, *map(str, line)],
            env={**os.environ, **SPARK},
            stdout=output,
            stderr=output,
        )
        try:
            with closing(psycopg.connect(dsn, autocommit=True)) as conn:
                await_true(lambda: process.poll() is not None or conn.execute(_READ).fetchone())
            yield
            ended = process.poll()
            process.terminate()
            process.wait(_STOP_S)
        finally:
            process.kill()
    if ended is not None:
        raise SystemExit(f"{stage} ended with {ended}:\n{log.read_text()[-3000:]}")


def _run_file(server: Server, dsn: str, path: Path, folder: Path, suite: Path) -> int:
    """Run a file with psql; return the number of its errors, which are part of the tests."""
    environment = {
        **os.environ,
        "PG_ABS_SRCDIR": str(suite),
        "PG_ABS_BUILDDIR": str(folder),
        "PG_LIBDIR": str(folder),
        "PG_DLSUFFIX": ".so",
        "PGTZ": "America/Los_Angeles",
        "PGDATESTYLE": "Postgres, MDY",
    }
    output = folder / f"{path.stem}.out"
    with output.open("wb") as out, suppress(subprocess.TimeoutExpired):
        line: list[str | Path] = [server.bin / "psql", "-X", "-q", "-d", dsn, "-f", path]
        subprocess.run(line, env=environment, cwd=folder, stdout=out, stderr=out, check=False, timeout=_FILE_S)
    return output.read_bytes().count(b"ERROR:  ")


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
class Campaign:
    """A server with a database, its lake, and the folder of logs; `spark`: with `follow` and `verify`."""

    server: Server
    dsn: str
    folder: Path
    suite: Path
    spark: bool

    @property
    def lake(self) -> Lake:
        return Lake(self.folder / "lake")

    @property
    def line(self) -> list[str | Path]:
        """The options that name source and lake."""
        return ["--source", self.dsn, "--lake", self.lake.root]

    def prepare(self, *, with_trigger: bool) -> None:
        """Create the publication and the event triggers."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(_EVERYTHING)
            conn.execute(_IDENTITY)
        if with_trigger:
            install_trigger(self.dsn)

    def work(self, files: Sequence[Path], evidence: Evidence) -> None:
        """Run the files beneath the lake's processes, and record the state after each."""
        with _followed(self.dsn, self.lake, self.folder / "follow.log", "follow" if self.spark else "capture"):
            for path in files:
                begun = time.monotonic()
                evidence.failed[path.stem] = _run_file(self.server, self.dsn, path, self.folder, self.suite)
                evidence.seconds[path.stem] = time.monotonic() - begun
                evidence.observe(self.dsn, path.stem)
                if not self.spark:
                    self.copy(evidence)

    def copy(self, evidence: Evidence) -> None:
        """Copy new tables."""
        copied = command.run(["bootstrap", *self.line])
        if copied.code != _DONE:
            print(f"bootstrap ended with {copied.code}: {copied.stderr[-1000:]}", flush=True)  # noqa: T201
        evidence.broken += [copied.stderr] if copied.code == _BUG else []

    def settle(self, evidence: Evidence) -> int | None:
        """Bring everything into the lake; return the exit code of `verify`, None without Spark."""
        settled = command.run(["follow" if self.spark else "capture", "--until-current", *self.line], SPARK)
        print(settled.stderr[-6000:])  # noqa: T201 - this is its report
        evidence.broken += [] if settled.code in _SETTLED else [settled.stderr]
        if not self.spark:
            return None
        with command.start(["verify", *self.line], SPARK) as verifying:
            found, messages = verifying.communicate(timeout=_VERIFY_S)
        print(found[-6000:] + messages[-6000:])  # noqa: T201
        return verifying.returncode


def run(source: Path, chosen: Sequence[str], folder: Path, *, with_trigger: bool, spark: bool) -> int:
    """Run the files and compare; print a report and return the exit code."""
    evidence, verdict = Evidence(), Verdict()
    files = [*_scheduled(source / "regress"), *_sent_to_publishers(source / "subscription", folder)]
    with Server(chosen_version(), settings=_SETTINGS) as server:
        dsn = server.dsn(server.create_database("regression"))
        campaign = Campaign(server, dsn, folder, source / "regress", spark)
        campaign.prepare(with_trigger=with_trigger)
        campaign.work([f for f in files if not chosen or f.stem in {*chosen, "test_setup"}], evidence)
        verified = campaign.settle(evidence)
        _compare(campaign.lake, evidence.moments, verdict)
    facts = {
        "trigger": with_trigger,
        "files": len(evidence.seconds),
        "tables": len({name for moment in evidence.moments for name in moment.tables}),
        "errors that the files expect or that come of missing functions": sum(evidence.failed.values()),
        "seconds": round(sum(evidence.seconds.values())),
        "verify": verified,
        "states": str(verdict),
        "refused": dict(verdict.refused.most_common()),
        "wrong": verdict.wrong,
        "broken": evidence.broken,
    }
    print(json.dumps(facts, indent=2), flush=True)  # noqa: T201
    return 1 if verdict.wrong or evidence.broken or verified not in {None, _DONE, _UNVERIFIED} else 0


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="run PostgreSQL's own tests beneath follow, then compare")
    parser.add_argument("--source", type=Path, required=True, help="src/test of a source tree of PostgreSQL")
    parser.add_argument("--files", default="", help="only these tests, without .sql, separated by commas")
    parser.add_argument("--no-trigger", action="store_true", help="without the DDL trigger")
    parser.add_argument("--no-spark", action="store_true", help="capture and bootstrap only, without a JVM; no verify")
    parser.add_argument("--keep", type=Path, help="a folder for lake and logs, which is not removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="auditlake-regression-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        (folder / "results").mkdir(exist_ok=True)
        (folder / "results").chmod(0o777)  # the server writes there as another user
        chosen = [name for name in given.files.split(",") if name]
        sys.exit(
            run(given.source.absolute(), chosen, folder, with_trigger=not given.no_trigger, spark=not given.no_spark)
        )


if __name__ == "__main__":
    main()
