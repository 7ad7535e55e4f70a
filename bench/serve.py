"""The page of `auditlake serve`: pages of a large table, moves of the slider, first paint.

    python bench/serve.py [--rows 1000000] [--moves 100] [--lake LAKE]

Without --lake, moves are measured on a lake of four small tables with 2,000 commits, half of them in the tail. Each
page of the large table is asked with another order or filter, so that no answer is cached. A move of the slider asks
for the fragment of a table's page, and of the list of tables, as of another commit. Times are of HTTP requests to a
server process on this machine, medians and maxima. First paint is Chromium's, if it is installed (packages chromium
and chromium-driver), of a page that was not asked before.
"""

import argparse
import http.client
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

import harness  # noqa: F401 - the tests can be imported
import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.lake.history import create_history
from auditlake.lake.layout import (
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.small_lake import T0, T0_US, write_log

_ITEMS = TableName("public", "items")
_COLUMNS = (
    Column("id", 20, -1, key=True),
    Column("sku", 25, -1, key=False),
    Column("status", 25, -1, key=False),
    Column("price", 1700, ((10 << 16) | 2) + 4, key=False),
    Column("at", 1184, -1, key=False),
)
_STATES = ("placed", "paid", "shipped", "cancelled")
_FIRST, _COMMITS, _SMALL = 0x1000, 2_000, 3_000
_SHOP = tuple(TableName("public", name) for name in ("customers", "order_lines", "orders", "products"))


def main() -> None:
    """Build the lakes, start a server for each, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--lake", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="auditlake-serve-") as folder:
        large = _large(Path(folder) / "large", asked.rows)
        with _server(large) as url:
            _measure_pages(url, asked.rows)
        with _server(asked.lake or _shop(Path(folder) / "shop")) as url:
            _measure_moves(url, asked.moves)
            _measure_paint(url)


def _lake(root: Path, tables: dict[TableName, pa.Table], position: int) -> Lake:
    """Write a lake with these tables, each a snapshot."""
    lake = Lake(root)
    write_manifest(lake, Manifest("7", 1, "shop", "auditlake", "auditlake"))
    positions = {HISTORY_APP: position, SNAPSHOT_APP: _FIRST, SNAPSHOT_TIME_APP: T0_US}
    transactions = [Transaction(app, version) for app, version in positions.items()]
    for oid, (name, rows) in enumerate(tables.items(), 1):
        table = create_history(lake, name, _COLUMNS, oid)
        whole = rows.cast(pa.schema(table.schema().to_arrow()))
        write_deltalake(table, whole, mode="append", commit_properties=CommitProperties(app_transactions=transactions))
    return lake


def _rows(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    cents = random.integers(100, 100_000, count).tolist()
    instant = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "sku": pa.array([f"SKU-{n % 50_000:06d}" for n in range(count)]),
            "status": pa.array(np.array(_STATES)[random.integers(0, len(_STATES), count)]),
            "price": pa.array([f"{each // 100}.{each % 100:02}" for each in cents]).cast(pa.decimal128(10, 2)),
            "at": pa.array(T0_US + random.integers(0, 10**10, count)).cast(instant),
            "_from_lsn": pa.array(np.full(count, _FIRST)),
            "_to_lsn": pa.nulls(count, pa.int64()),
            "_from_time": pa.array(np.full(count, T0_US)).cast(instant),
            "_to_time": pa.nulls(count, instant),
            "_op": pa.array(["snapshot"] * count),
            "_end_op": pa.nulls(count, pa.string()),
            "_xid": pa.nulls(count, pa.int64()),
            "_end_xid": pa.nulls(count, pa.int64()),
            "_ordinal": pa.array(np.zeros(count), pa.int32()),
            "_raw": pa.nulls(count, pa.map_(pa.string(), pa.string())),
            "_part": pa.array(["open"] * count),
        }
    )


def _large(root: Path, count: int) -> Path:
    lake = _lake(root, {_ITEMS: _rows(count)}, _FIRST)
    _log(lake, 1)
    return root


def _shop(root: Path) -> Path:
    """Write the small tables, with commits that update their rows: all of them in the tail, as of the latest."""
    lake = _lake(root, dict.fromkeys(_SHOP, _rows(_SMALL)), _FIRST)
    _log(lake, _COMMITS)
    return root


def _log(lake: Lake, commits: int) -> None:
    relations = RelationsLog(lake)
    numbers = [
        relations.register(Relation(n, name, ReplicaIdentity.DEFAULT, _COLUMNS), Lsn(_FIRST))
        for n, name in enumerate(_SHOP, 1)
    ]
    relations.flush()
    changes, transactions = [], []
    for number in range(1, commits + 1):
        lsn, at, of = _FIRST + 0x100 * number, T0 + timedelta(seconds=number), number % len(_SHOP)
        key = str(number * 7 % _SMALL)
        row = [key, "SKU-000001", "paid", f"{number}.00", "2026-01-01 12:00:00+00"]
        common = {"lsn": lsn, "xid": number, "time": at}
        changes.append(
            common
            | {
                "ordinal": 0,
                "op": "update",
                "schema": "public",
                "table": _SHOP[of].table,
                "relation": numbers[of],
                "new": row,
            }
        )
        transactions.append(common | {"end_lsn": lsn + 0x80, "time_mono": at, "tables": [str(_SHOP[of])], "updates": 1})
    last, current_us = _FIRST + 0x100 * commits, T0_US + (commits + 1) * 1_000_000
    write_log(lake, transactions, changes, acknowledged_lsn=last + 0x80, current_us=current_us)


@contextmanager
def _server(lake: Path) -> Iterator[str]:
    """Start `auditlake serve` on a free port; yield its address."""
    command = [sys.executable, "-m", "auditlake", "serve", "--lake", str(lake), "--listen", "127.0.0.1:0"]
    begun = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            url = re.findall(r"http://[^;]+/", line)[0]
            _get(url, "/api/v1/lake")
            print(f"start, up to the first answer: {time.perf_counter() - begun:.2f} s")
            yield url
        finally:
            process.terminate()


def _get(url: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:300]!r}")
        return body
    finally:
        connection.close()


def _time(url: str, paths: list[str]) -> list[float]:
    found = []
    for path in paths:
        begun = time.perf_counter()
        _get(url, path)
        found.append((time.perf_counter() - begun) * 1000)
    return found


def _report(what: str, times_ms: list[float]) -> None:
    print(f"{what:<58} median {statistics.median(times_ms):6.0f} ms   max {max(times_ms):6.0f} ms")


def _measure_pages(url: str, count: int) -> None:
    page = "/rows?table=items"
    _get(url, page)  # the first answer of a process imports what it needs
    _report("page by another column, of the files", _time(url, [f"{page}&sort=price&where=id:ge:{n}" for n in (0, 1)]))
    _wait_until_held(url, page)
    _report(f"page of {count:,} rows by key", _time(url, [f"{page}&offset={n}" for n in range(50, 1050, 100)]))
    orders = ["price", "-price", "sku", "-sku", "status", "-status", "at", "-at"]
    _report("page by another column", _time(url, [f"{page}&sort={order}" for order in orders]))
    filters = [f"price:ge:{n}" for n in range(100, 900, 100)]
    _report("page with a filter, and its count", _time(url, [f"{page}&where={each}" for each in filters]))
    _report("page with a text filter", _time(url, [f"{page}&where=sku:has:{n}" for n in range(101, 109)]))
    middle = count // 2
    _report("page from the middle", _time(url, [f"{page}&offset={n}" for n in range(middle, middle + 800, 100)]))
    _report("page from the middle, by another column", _time(url, [f"{page}&offset={middle}&sort={n}" for n in orders]))
    _report("frequent values", _time(url, [f"{page}&facet=status&where=id:ge:{n}" for n in range(8)]))


def _wait_until_held(url: str, page: str) -> None:
    """Wait until the rows are in memory: a sorted page then takes a fraction of the time."""
    first = _time(url, [f"{page}&sort=price&limit=51"])[0]
    for number in range(52, 100):
        time.sleep(0.2)
        if _time(url, [f"{page}&sort=price&limit={number}"])[0] < first / 2:
            return


def _measure_moves(url: str, moves: int) -> None:
    commits = json.loads(_get(url, "/api/v1/lake"))["at"]["commits"]
    numbers = [1 + place * (commits - 1) // moves for place in range(moves)]
    lsns = [json.loads(_get(url, f"/api/v1/step?number={number}"))["lsn"] for number in numbers]
    for name, page in (
        ("a table's rows", "/rows?table=orders&"),
        ("all tables with counts", "/?"),
        ("transactions", "/log?"),
    ):
        _get(url, page)
        times = _time(url, [f"{page}at={quote(lsn)}&_fragment=1" for lsn in lsns])
        _report(f"slider move: {name}", times)


def _measure_paint(url: str) -> None:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        print("first paint: not measured, needs chromium and chromium-driver")
        return
    from selenium import webdriver  # noqa: PLC0415 - optional

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    try:
        times = []
        for path in ("/", "/rows?table=orders", "/log", "/rows?table=customers", "/status"):
            browser.get(url.rstrip("/") + path)
            deadline = time.monotonic() + 5
            while (painted := browser.execute_script(script)) is None and time.monotonic() < deadline:
                time.sleep(0.05)
            times.append(float(painted))
        _report("first paint, five pages", times)
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
