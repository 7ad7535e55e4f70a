"""Cost of the ledger: CPU of sealing as a share of capture's, its size, and the time of a comparison with a digest.

    python bench/ledger.py [--runs 3] [tpcb] [insert] [commits]

The slot is captured, then all that was captured is sealed in this process. Each round is measured with cold caches of
this process but warm ones of the system; start-up of Python is in capture's share only.
"""

import argparse
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from capture import commits, insert, tpcb
from harness.site import Site, bench_server

from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import Block
from auditlake.ledger.digest import checkpoint_of
from auditlake.ledger.seal import Sealer
from auditlake.ledger.verification import VerifiedDigest, verify_digests

_MIB = 1 << 20


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / _MIB


@dataclass(frozen=True)
class _Sealed:
    cpu_s: float
    seconds: float
    block: Block
    ledger_mib: float
    logged_mib: float


def _compare(name: str, runs: int) -> None:
    with bench_server() as (server, folder):
        site = Site(server, folder, name)
        {"tpcb": tpcb, "insert": insert, "commits": commits}[name](site)
        captured = [site.capture() for _ in range(runs)]
        lake = Lake(folder / "captured")
        sealed = [_seal(lake) for _ in range(runs)]
        began, used = time.monotonic(), _cpu_s()
        proof = verify_digests(lake, [VerifiedDigest("bench", checkpoint_of(sealed[-1].block))], 20)
        took = f"{time.monotonic() - began:.2f} s, {_cpu_s() - used:.2f} CPU-s"
        if proof.mismatches:
            raise SystemExit(f"not proved: {proof.mismatches[0]}")
    capture_s = median(run.cpu_s for run in captured)
    seal_s, seconds = median(each.cpu_s for each in sealed), median(each.seconds for each in sealed)
    last = sealed[-1]
    print(f"{name}: capture {capture_s:.2f} CPU-s; sealing {proof.entries:,} entries {seal_s:.2f} CPU-s", end="")
    print(f" ({seal_s / capture_s:.0%}), {seconds:.2f} s; comparison {took}; ", end="")
    print(f"ledger {last.ledger_mib:.1f} MiB, changes and transactions {last.logged_mib:.1f} MiB", flush=True)


def _seal(lake: Lake) -> _Sealed:
    shutil.rmtree(lake.ledger, ignore_errors=True)
    began, used = time.monotonic(), _cpu_s()
    blocks = Sealer(lake).seal("bench")
    cpu_s, seconds = _cpu_s() - used, time.monotonic() - began
    return _Sealed(cpu_s, seconds, blocks[-1], _size(lake.ledger), _size(lake.changes) + _size(lake.transactions))


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
