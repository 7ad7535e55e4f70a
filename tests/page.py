"""The page of `auditlake serve` without a server: requests to the ASGI application, over the small lake.

The small lake gets one more table, `public.hostile`, with values that attack a page, and values beyond their types:

    id  text                              amount     day
    1   <script>alert(1)</script>         1.50       2026-01-02
    2   bell, right-to-left override      NaN        0044-03-15 BC
    3   the empty text                    -Infinity  infinity
    4   NULL                              NULL       NULL
    5   500 characters                    -2.00      1999-12-31
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from auditlake.audit import bounds
from auditlake.lake.layout import (
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.query.languages import DEFAULT
from auditlake.relation import Column, TableName
from auditlake.sandbox.processes import Setup, Statement
from auditlake.sandbox.statements import Responder
from auditlake.serve.access import Access
from auditlake.serve.access_log import AccessLog
from auditlake.serve.resources import Limits, Resources
from auditlake.serve.server import create_app
from tests.s3_server import chosen_lake
from tests.small_lake import T0, T0_US, version, write_history, write_log, write_small_lake

HOST = "127.0.0.1:8640"
SCRIPT = "<script>alert(1)</script>"
UNSEEN = "bell \x07 and override \u202e"
LONG = "x" * 500
_COLUMNS = (
    Column("id", 23, -1, key=True),
    Column("text", 25, -1, key=False),
    Column("amount", 1700, ((10 << 16) | 2) + 4, key=False),
    Column("day", 1082, -1, key=False),
)


def write_lake(root: Path) -> Lake:
    """Write the small lake, its manifest, and the table `hostile`."""
    write_manifest(chosen_lake(root), Manifest("7", 1, "shop", "auditlake", "auditlake"))
    lake = write_small_lake(root)
    rows = [
        _row(1, SCRIPT, Decimal("1.50"), date(2026, 1, 2), {}),
        _row(2, UNSEEN, None, None, {"amount": "NaN", "day": "0044-03-15 BC"}),
        _row(3, "", None, None, {"amount": "-Infinity", "day": "infinity"}),
        _row(4, None, None, None, {}),
        _row(5, LONG, Decimal("-2.00"), date(1999, 12, 31), {}),
    ]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "hostile"), _COLUMNS, rows, positions)
    return lake


def _row(
    number: int, text: str | None, amount: Decimal | None, day: date | None, raw: Mapping[str, str]
) -> dict[str, Any]:
    values = {"id": number, "text": text, "amount": amount, "day": day}
    return values | version(0x100, None, "snapshot", None) | {"_raw": list(raw.items()) or None}


def capture_transaction(lake: Lake, lsn: int, order: int = 4) -> None:
    """Append a transaction that deletes an order, as capture does: `transactions` first, then `changes`."""
    at = T0 + timedelta(seconds=60)
    common = {"lsn": lsn, "xid": 20, "time": at}
    transaction = common | {"end_lsn": lsn + 0x20, "time_mono": at, "tables": ["public.orders"], "deletes": 1}
    change = common | {"ordinal": 0, "op": "delete", "schema": "public", "table": "orders", "relation": 1}
    change |= {"old": [str(order), None, None, None], "new": None}
    write_log(lake, [transaction], [change], acknowledged_lsn=lsn + 0x20, current_us=T0_US + 200_000_000)


class _Recording:
    """The other end of a process of statements: it has what was said, and asks for every answer."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def say(self, message: Mapping[str, object]) -> None:
        self.said |= message

    def receive(self) -> bytes:
        return b"run"


def answered_here(lake: Lake, sql: str) -> dict[str, Any]:
    """Return what a process of statements says of a statement, which is answered in this one."""
    server: Any = _Recording()
    statement = Statement(sql, None, UTC, DEFAULT, 1_000, bounds.ANSWER_CHARACTERS, 0)
    found = Responder(Setup(lake), server).answer(statement)
    answered: dict[str, Any] = server.said | dict(found or {})
    return answered


class Page:
    """A client of the page of one lake."""

    def __init__(
        self,
        lake: Lake,
        access: Access | None = None,
        limits: Limits | None = None,
        access_log: AccessLog | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.resources = Resources(lake, UTC, limits or Limits())
        self.app = create_app(self.resources, access or Access(frozenset({HOST})), access_log=access_log)
        self.address = address

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Send one request."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=(self.address, 50_000))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, **given)

        return asyncio.run(send())

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        """Get a path with parameters."""
        return self.ask("GET", path, params=parameters)

    def json(self, name: str, **parameters: Any) -> Any:
        """Return the answer of an endpoint of the API."""
        response = self.get(f"/api/v1/{name}", **parameters)
        assert response.status_code == 200, response.text
        return response.json()
