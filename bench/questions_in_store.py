"""Questions about a lake in an object store compared with the same lake on the local disk, changes applied or not.

    python bench/questions_in_store.py [--delay-ms 30] [--runs 3] [--server versitygw|moto]

Two lakes follow one database of pgbench, 100,000 accounts: seven small commits of capture, of which three are applied.
A process asks each question once when it starts, which includes its imports, and then again eight times; `--runs`
processes for disk and store take turns, with the delay added to every request of the store. One line per question has
the medians of the first time and of the least of the later ones, store ÷ disk, and the requests of a later one.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from statistics import median
from typing import cast

from harness.counting_proxy import CountingProxy
from harness.site import Site, bench_server

from tests.s3_server import s3_server

_APPLIED, _COMMITS = 3, 7
_AGAIN = 8
_ACCOUNTS = "public.pgbench_accounts"
_PLACES = ("disk", "store")
Asked = dict[str, Callable[[], object]]


def _questions(location: str, moments: list[str]) -> Asked:
    from auditlake import Lake  # noqa: PLC0415 - the parent does not need it
    from auditlake.lake.layout import Lake as Layout  # noqa: PLC0415 - as above
    from auditlake.query.embedded.engine import Embedded  # noqa: PLC0415 - as above
    from auditlake.query.statement import prepare_statement, read_state  # noqa: PLC0415 - as above

    lake, layout, engine = Lake(location), Layout.at(location), Embedded({})
    applied, time_of = moments

    def sql(moment: str | None) -> Callable[[], object]:
        script = "select bid, count(*), sum(abalance) from pgbench_accounts group by bid"

        def ask() -> object:
            state = read_state(layout, moment, UTC, script=script)
            _, batches = engine.answer(state, prepare_statement(state, script, {})).batches()
            return [len(batch) for batch in batches]

        return ask

    return {
        "sql, applied": sql(applied),
        "sql, unapplied changes": sql(None),
        "sql, as of a time": sql(time_of),
        "row": lambda: lake.row(_ACCOUNTS, 7),
        "log": lambda: lake.log(limit=20),
        "log of a table": lambda: lake.log(table=_ACCOUNTS, limit=20),
        "blame": lambda: lake.blame(_ACCOUNTS, 7),
        "diff of a table": lambda: lake.diff(applied, tables=[_ACCOUNTS]),
    }


def _ask(location: str, moments: list[str], only: str) -> None:
    """Print the seconds of the first answer, with imports, and of the fastest later one."""
    begun_s = time.monotonic()
    question = _questions(location, moments)[only]
    question()
    first, later = time.monotonic() - begun_s, []
    Path(os.environ["READY"]).touch()
    for _ in range(_AGAIN):
        begun_s = time.monotonic()
        question()
        later.append(time.monotonic() - begun_s)
    print(json.dumps([first, min(later)]))


def _lakes(site: Site, bucket: str) -> tuple[dict[str, str], list[str]]:
    """Make both lakes; return them with the LSN up to which they are applied and a time after it."""
    site.load_tpcb(1)
    lakes = {"disk": str(site.folder / "asked"), "store": f"{bucket}/asked"}
    moments: list[str] = []
    for name, lake in lakes.items():
        site.auditlake("bootstrap", "--slot", name, "--publication", name, lake=cast("Path", lake))
    for number in range(_COMMITS):
        site.tool("pgbench", "-n", "-t", "200", site.name)
        for lake in lakes.values():
            site.auditlake("capture", "--until-current", lake=cast("Path", lake))
            if number < _APPLIED:
                site.auditlake("apply", "--until-current", lake=cast("Path", lake))
        if number == _APPLIED - 1:
            moments.append(site.sql("select pg_current_wal_insert_lsn()"))
        if number == _COMMITS - 2:
            moments.append(site.sql("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.USZ')"))
    return lakes, moments


def _measure(lake: str, moments: list[str], question: str, proxy: CountingProxy | None, ready: Path) -> list[float]:
    ready.unlink(missing_ok=True)
    settings = {**os.environ, "READY": str(ready)}
    if proxy is not None:
        settings["AWS_ENDPOINT_URL"] = proxy.endpoint
    command = [sys.executable, __file__, "--ask", lake, "--moments", *moments, "--question", question]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        while not ready.exists() and process.poll() is None:
            time.sleep(0.002)
        made = 0 if proxy is None else proxy.kinds.total()
        output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{question} of {lake} ended with {process.returncode}")
    requests = 0 if proxy is None else (proxy.kinds.total() - made) / _AGAIN
    return [*json.loads(output), requests]


def main() -> None:
    """Print one line per question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server", default="versitygw", choices=("versitygw", "moto"))
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--moments", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--question", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask is not None:
        _ask(asked.ask, asked.moments, asked.question)
        return
    with s3_server(asked.server) as bucket, bench_server() as (server, folder):
        lakes, moments = _lakes(Site(server, folder, "asked"), bucket)
        proxy = CountingProxy(os.environ["AWS_ENDPOINT_URL"], asked.delay_ms / 1000)
        print(f"{'':<26}{'first: disk, store, ratio':>30}{'again: disk, store, ratio':>34}   requests")
        for question in _questions(lakes["disk"], moments):
            times: dict[str, list[list[float]]] = defaultdict(list)
            for _ in range(asked.runs):
                for place in _PLACES:
                    used = proxy if place == "store" else None
                    times[place].append(_measure(lakes[place], moments, question, used, folder / "ready"))
            line = f"{question:<26}"
            for part in range(2):
                disk, store = (median(run[part] for run in times[place]) for place in _PLACES)
                line += f"{disk:>14.3f} s{store:>8.3f} s{store / disk:>6.2f}"
            print(f"{line}   {median(run[2] for run in times['store']):.1f}", flush=True)


if __name__ == "__main__":
    main()
