"""Cost of the ledger: a catch-up without and with sealing beside it, sealing afterwards, comparing with a digest.

    python bench/ledger.py [--runs 3] [tpcb] [insert] [commits]

In turns, `capture` reads the slot into a copy of a sealed lake without sealing, and with a pass every second. Until all
is durable and acknowledged it catches up; from then until it ends, only sealing is left. Compare the ratios of the
medians. The comparison with a digest is measured in this process.
"""

import argparse
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psycopg
from capture import commits, insert, tpcb
from harness.site import AUDITLAKE, Site, bench_server
from harness.usage import OURS, cpu_s

from auditlake.lake.layout import Lake
from auditlake.ledger.digest import checkpoint_of, last_block
from auditlake.ledger.verification import VerifiedDigest, verify_digests

_MIB, _POLL_S = 1 << 20, 0.02
_CONFIRMED = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = 'captured'"


@dataclass(frozen=True)
class _CatchUp:
    """Seconds and CPU-seconds until everything is acknowledged, and CPU-seconds from then on."""

    seconds: float
    cpu_s: float
    afterwards_s: float


def _catch_up(site: Site, until: str, *, sealing: bool) -> _CatchUp:
    with site.copied() as environment, psycopg.connect(site.dsn, autocommit=True) as conn:
        began = time.monotonic()
        command = [*AUDITLAKE, "capture", "--until-current"]
        process = subprocess.Popen(command, env={**environment, "AUDITLAKE_SEAL_EVERY_S": str(int(sealing))})
        while conn.execute(_CONFIRMED, [until]).fetchall() != [(True,)] and not _has_ended(process.pid):
            time.sleep(_POLL_S)
        seconds, used_s = time.monotonic() - began, cpu_s(Path(f"/proc/{process.pid}"))
        *_, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return _CatchUp(seconds, used_s, usage.ru_utime + usage.ru_stime - used_s)


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, and leave its status to `wait4`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _middle(runs: list[_CatchUp]) -> _CatchUp:
    return _CatchUp(*(median(getattr(run, name) for run in runs) for name in ("seconds", "cpu_s", "afterwards_s")))


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / _MIB


def _compare(name: str, runs: int) -> None:
    with bench_server() as (server, folder):
        site = Site(server, folder, name)
        {"tpcb": tpcb, "insert": insert, "commits": commits}[name](site)
        site.auditlake("seal")
        until = site.sql("select pg_current_wal_insert_lsn()")
        pairs = [(_catch_up(site, until, sealing=False), _catch_up(site, until, sealing=True)) for _ in range(runs)]
        without, beside = (_middle([pair[side] for pair in pairs]) for side in (0, 1))
        print(f"{name}, without sealing: {without.seconds:.2f} s, {without.cpu_s:.2f} CPU-s, ", end="")
        print(f"afterwards {without.afterwards_s:.2f} CPU-s")
        print(f"{name}, with sealing: {beside.seconds:.2f} s ({beside.seconds / without.seconds:.2f} x), ", end="")
        print(f"{beside.cpu_s:.2f} CPU-s ({beside.cpu_s / without.cpu_s:.2f} x), afterwards ", end="")
        seal_s = beside.afterwards_s - without.afterwards_s
        print(f"{seal_s:.2f} CPU-s more ({seal_s / (without.cpu_s + without.afterwards_s):.0%})", flush=True)
        _prove(Lake(folder / "captured"))


def _prove(lake: Lake) -> None:
    began, used = time.monotonic(), cpu_s(OURS)
    proof = verify_digests(lake, [VerifiedDigest("bench", checkpoint_of(last_block(lake)))], 20)
    took = f"{time.monotonic() - began:.2f} s, {cpu_s(OURS) - used:.2f} CPU-s"
    if proof.mismatches:
        raise SystemExit(f"not proved: {proof.mismatches[0]}")
    logged = _size(lake.changes) + _size(lake.transactions)
    print(f"comparison of {proof.entries:,} entries {took}; ledger {_size(lake.ledger):.1f} MiB, ", end="")
    print(f"changes and transactions {logged:.1f} MiB", flush=True)


def main() -> None:
    """Parse arguments, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["tpcb", "insert", "commits"])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.what:
        _compare(name, arguments.runs)


if __name__ == "__main__":
    main()
