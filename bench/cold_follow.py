"""Commands from the start of their process to its end: with all changes waiting, and with none, against a subscription.

    python bench/cold_follow.py [--scale 20] [--transactions 100000] [--runs 3] [--standard]

The peer is PostgreSQL's subscription, whose workers are warm (`bench/follow.py` has ours warm, too). `follow` has the
changes waiting in the slot; `apply` has them waiting in `changes`. CPU-seconds are those of all their processes, also
the JVM. Without anything to do no JVM may start. With `--standard`, pgbench_history has no primary key.
"""

import argparse
from collections import defaultdict
from dataclasses import replace

from harness.site import Run, Site, bench_server
from harness.subscription import load, run_subscription, subscribe, unsubscribe
from harness.usage import CpuOfChildren

_WARM_UP = 20_000


def _measure(site: Site, *arguments: str) -> Run:
    with CpuOfChildren() as cpu:
        run = site.auditlake(*arguments, "--until-current")
    return replace(run, cpu_s=cpu.seconds)


def _measured(scale: int, transactions: int, runs: int, *, standard: bool) -> dict[str, list[Run]]:
    found = defaultdict[str, list[Run]](list)
    with bench_server() as (server, folder):
        site = Site(server, folder, "tpcb")
        site.load_tpcb(scale, standard=standard)
        site.auditlake("bootstrap")
        native = subscribe(site)
        load(site, _WARM_UP)
        run_subscription(site, native)
        site.auditlake("follow", "--until-current")
        for _ in range(runs):
            load(site, transactions)
            found["subscription, warm: all changes waiting"].append(run_subscription(site, native))
            found["follow, cold: all changes waiting"].append(_measure(site, "follow"))
            load(site, transactions)
            run_subscription(site, native)
            site.auditlake("capture", "--until-current")
            found["apply, cold: all changes waiting"].append(_measure(site, "apply"))
            found["follow, nothing to do"].append(_measure(site, "follow"))
            found["apply, nothing to do"].append(_measure(site, "apply"))
        unsubscribe(site, native)
    return found


def main() -> None:
    """Parse arguments, measure, report medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--standard", action="store_true")
    arguments = parser.parse_args()
    peer_s = 0.0
    measured = _measured(arguments.scale, arguments.transactions, arguments.runs, standard=arguments.standard)
    for what, runs in measured.items():
        run = sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
        peer_s = peer_s or run.seconds
        print(run.line(what, f"{run.seconds / peer_s:.2f} x"))


if __name__ == "__main__":
    main()
