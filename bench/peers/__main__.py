"""Run jobs side by side, keep each result as JSON, and generate the page: `make peers` (docs/contributing.md).

    python -m peers [JOB[:SCALE]...] [--scale 0.1] [--runs 3] [--patience 60] [--minutes M] [--missing]

Each job writes its result when it ends, so an interrupted session continues with `--missing`: it leaves out jobs that
have a result of the same commit, scale and runs.
"""

import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from peers import as_of, copies, latency, page, source, streams
from peers.arena import Arena, open_arena
from peers.catalogue import JOBS
from peers.contest import Contender, as_result, contest, environment
from peers.digest import Digest

_SMALL_TABLES, _TPCB_SCALE, _STEADY_S = 200, 20, 20
_DEBIAN_15 = Path("/usr/lib/postgresql/15")
_STREAMS = {
    "tpcb": (100_000, "transactions"),
    "tpcb-standard": (100_000, "transactions"),
    "insert": (1_000_000, "rows in one transaction"),
    "commits": (500_000, "transactions of one row"),
    "one-key": (100_000, "changes of one key"),
}
_ROWS_OF_ONE = {"insert": 1, "small-tables": copies.SMALL_ROWS}
_GROWTH = {"growth-rows": ("insert", (0.01, 0.1, 1.0)), "growth-tables": ("small-tables", (0.05, 0.5, 5.0))}
_RATES = {"latency-100": 100, "latency-500": 500}


def main() -> None:
    """Parse arguments, run the jobs, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB[:SCALE]", help=f"{', '.join(JOBS)} [all]")
    parser.add_argument("--scale", type=float, default=0.1, help="1 is the full size: TPC-H at scale factor 1")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60, help="seconds; who takes longer runs only once")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no job after this time")
    parser.add_argument("--missing", action="store_true", help="leave out jobs with a result of this commit and scale")
    arguments = parser.parse_args()
    jobs = [(name, float(scale or arguments.scale)) for name, _, scale in map(_parted, arguments.jobs or JOBS)]
    unknown = {name for name, _ in jobs} - set(JOBS)
    if unknown:
        parser.error(f"unknown jobs: {', '.join(sorted(unknown))}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped and folders removed
    end_s = time.monotonic() + 60 * arguments.minutes
    facts = {**environment(), "runs": arguments.runs}
    page.RESULTS.mkdir(exist_ok=True)
    for job, scale in jobs:
        file = page.RESULTS / f"{job}.json"
        if arguments.missing and file.exists() and _is_of(json.loads(file.read_text()), {**facts, "scale": scale}):
            continue
        if time.monotonic() > end_s:
            print(f"{job} is left out: {arguments.minutes:g} minutes are over", flush=True)
            continue
        print(f"{job}, scale {scale:g}", flush=True)
        result = _measured(job, scale, arguments.patience, facts)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        page.write()
    page.write()


def _parted(job: str) -> tuple[str, str, str]:
    return job.partition(":")


def _is_of(result: dict[str, Any], facts: dict[str, Any]) -> bool:
    return all(result[name] == facts[name] for name in ("commit", "scale", "runs"))


def _prepared(arena: Arena, job: str, scale: float) -> tuple[str, Digest | None, list[Contender]]:
    """Make what a job needs; return its size in words, what every result must equal, and the contenders."""
    if job in _STREAMS:
        size, what = _STREAMS[job]
        count = max(100, int(size * scale))
        stream = streams.Stream(arena, streams.loads(max(1, int(_TPCB_SCALE * scale)))[job], count)
        return f"{count:,} {what}, {stream.events:,} changes", stream.digest, stream.contenders()
    if job in _RATES:
        seconds = max(3.0, _STEADY_S * scale)
        return f"{seconds:.0f} s of single inserts", None, latency.contenders(arena, _RATES[job], seconds)
    if job == "source":
        seconds = max(3.0, _STEADY_S * scale)
        return f"{seconds:.0f} s of TPC-B at scale 10, four clients", None, source.contenders(arena, seconds)
    if job == "as-of":
        past = as_of.Past(arena, scale)
        return f"TPC-H at scale factor {scale:g}", past.answers, past.contenders()
    copied = _copied(arena, job, scale)
    digest, tables = copied.digest, len(copied.tables)
    rows = f"{digest.rows:,} rows"
    return f"{tables} tables, {rows}" if tables > 1 else rows, digest, copies.contenders(copied)


def _copied(arena: Arena, job: str, scale: float) -> copies.Source:
    if job == "small-tables":
        return copies.load_small(arena, max(2, int(_SMALL_TABLES * scale)))
    return copies.load_tpch(arena, scale, ("lineitem",) if job == "lineitem" else copies.TPCH)


def _measured(job: str, scale: float, patience_s: float, facts: dict[str, Any]) -> dict[str, Any]:
    if job not in _GROWTH:
        return _contested(job, scale, patience_s, facts)
    of, sizes = _GROWTH[job]
    points = [_contested(of, size * scale, patience_s, facts) for size in sizes]
    kept = [
        {"x": result["source"]["rows"] // _ROWS_OF_ONE[of], "contenders": result["contenders"]} for result in points
    ]
    return {**points[-1], "job": job, "scale": scale, "points": kept}


def _contested(job: str, scale: float, patience_s: float, facts: dict[str, Any]) -> dict[str, Any]:
    installation = _DEBIAN_15 if job == "source" and _DEBIAN_15.exists() else None  # has the extensions of triggers
    with open_arena(installation) as arena:
        size, expected, contenders = _prepared(arena, job, scale)
        print(f" {size}", flush=True)
        versions = {"PostgreSQL": arena.sql("postgres", "show server_version").split()[0], **facts["versions"]}
        tried = contest(contenders, facts["runs"], arena.folder, patience_s)
        return as_result(job, tried, expected, {**facts, "scale": scale, "versions": versions, "size": size})


if __name__ == "__main__":
    main()
