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

from peers import page
from peers.arena import open_arena
from peers.catalogue import JOBS
from peers.contest import as_result, contest, environment
from peers.preparation import GROWTH, Growth, prepare

_DEBIAN_15 = Path("/usr/lib/postgresql/15")
_NOBODY: frozenset[str] = frozenset()


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


def _measured(job: str, scale: float, patience_s: float, facts: dict[str, Any]) -> dict[str, Any]:
    """Run a job, or one that grows at each of its sizes: its result is that of the last one, with all as `points`."""
    growth, facts = GROWTH.get(job, Growth(job, (1,))), {**facts, "scale": scale}
    points: list[dict[str, Any]] = []
    for size in growth.sizes:
        left_out = growth.slow if points and size == growth.sizes[-1] else _NOBODY
        result = _contested(growth.of, size, patience_s, facts, left_out)
        points.append({"x": result.pop("grown"), "contenders": result["contenders"]})
    return {**result, "job": job, **({"points": points} if job in GROWTH else {})}


def _contested(
    job: str, size: float, patience_s: float, facts: dict[str, Any], left_out: frozenset[str]
) -> dict[str, Any]:
    installation = _DEBIAN_15 if job == "source" and _DEBIAN_15.exists() else None  # has the extensions of triggers
    with open_arena(installation) as arena:
        prepared = prepare(arena, job, facts["scale"], size)
        print(f" {prepared.size}", flush=True)
        versions = {"PostgreSQL": arena.sql("postgres", "show server_version").split()[0], **facts["versions"]}
        contenders = [each for each in prepared.contenders if each.name not in left_out]
        tried = contest(contenders, facts["runs"], arena.folder, patience_s)
        of_run = {**facts, "versions": versions, "size": prepared.size, "grown": prepared.grown}
        return as_result(job, tried, prepared.expected, of_run)


if __name__ == "__main__":
    main()
