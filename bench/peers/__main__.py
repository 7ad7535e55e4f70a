"""Run jobs side by side, keep each result as JSON, and generate the page: `make peers` (docs/contributing.md).

    python -m peers [JOB...] [--scale 0.1] [--runs 3] [--missing]

Each job writes its result when it ends, so an interrupted session continues with `--missing`: it leaves out jobs that
have a result of the same commit, scale and runs.
"""

import argparse
import json
from typing import Any

from peers import copies, page, streams
from peers.arena import Arena, open_arena
from peers.catalogue import JOBS
from peers.contest import as_result, contest, environment

_LINEITEM_SCALE, _SMALL_TABLES = 1.0, 200
_TPCB_SCALE = 20
_SIZES = {"tpcb": 100_000, "tpcb-standard": 100_000, "insert": 1_000_000, "commits": 500_000, "one-key": 100_000}
_WHAT = {
    "tpcb": "transactions",
    "tpcb-standard": "transactions",
    "insert": "rows in one transaction",
    "commits": "transactions of one row",
    "one-key": "changes of one key",
}


def main() -> None:
    """Parse arguments, run the jobs, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"{', '.join(JOBS)} [all]")
    parser.add_argument("--scale", type=float, default=0.1, help="1 is the full size: TPC-H at scale factor 1")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--missing", action="store_true", help="only jobs without a result of this commit, scale and runs"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.jobs) - set(JOBS)
    if unknown:
        parser.error(f"unknown jobs: {', '.join(sorted(unknown))}")
    facts = {**environment(), "scale": arguments.scale, "runs": arguments.runs}
    page.RESULTS.mkdir(exist_ok=True)
    for job in arguments.jobs or JOBS:
        file = page.RESULTS / f"{job}.json"
        if arguments.missing and file.exists() and _is_of(json.loads(file.read_text()), facts):
            continue
        print(f"{job}, scale {arguments.scale:g}", flush=True)
        result = _measured(job, arguments.scale, arguments.runs, facts)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    page.write()


def _is_of(result: dict[str, Any], facts: dict[str, Any]) -> bool:
    return all(result[name] == facts[name] for name in ("commit", "scale", "runs"))


def _measured(job: str, scale: float, runs: int, facts: dict[str, Any]) -> dict[str, Any]:
    with open_arena() as arena:
        return _stream(arena, job, scale, runs, facts) if job in _SIZES else _copy(arena, job, scale, runs, facts)


def _copy(arena: Arena, job: str, scale: float, runs: int, facts: dict[str, Any]) -> dict[str, Any]:
    if job == "small-tables":
        source = copies.load_small(arena, max(2, int(_SMALL_TABLES * scale)))
    else:
        tables = ("lineitem",) if job == "lineitem" else copies.TPCH
        source = copies.load_tpch(arena, _LINEITEM_SCALE * scale, tables)
    expected = source.digest
    size = (
        f"{len(source.tables)} tables, {expected.rows:,} rows" if len(source.tables) > 1 else f"{expected.rows:,} rows"
    )
    tried = contest(copies.contenders(source), runs, arena.folder)
    return as_result(job, tried, expected, {**facts, "size": size})


def _stream(arena: Arena, job: str, scale: float, runs: int, facts: dict[str, Any]) -> dict[str, Any]:
    count = max(100, int(_SIZES[job] * scale))
    stream = streams.Stream(arena, streams.loads(max(1, int(_TPCB_SCALE * scale)))[job], count)
    tried = contest(stream.contenders(), runs, arena.folder)
    size = f"{count:,} {_WHAT[job]}, {stream.events:,} changes"
    return as_result(job, tried, stream.digest, {**facts, "size": size})


if __name__ == "__main__":
    main()
