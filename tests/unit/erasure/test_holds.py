"""Legal holds: what they cover, when they end, what is refused, what is recorded, and that the ledger seals them."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from auditlake.erasure.holding import require_not_held
from auditlake.errors import ConfigError
from auditlake.failpoints import After
from auditlake.lake.holds import ADDED, RELEASED, HoldEvent, holds_in_force, in_force_at, matches
from auditlake.lake.key_tokens import make_secret, token
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage
from auditlake.lake.stage_lock import hold as held_lock
from auditlake.ledger.blocks import read_entries
from auditlake.ledger.canonical import Kind
from auditlake.relation import TableName
from tests.command import Done, run, run_here
from tests.ledger_lake import compared, found, sealed
from tests.read_lake import history_of
from tests.s3_server import overwrite
from tests.small_lake import CUSTOMERS, ORDERS, write_lake_with_manifest

_REASON = ("--reason", "court order")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake."""
    return write_lake_with_manifest(tmp_path / "lake")


def _hold(lake: Lake, *arguments: str) -> Done:
    return run_here(["hold", *arguments, "--lake", lake.root])


def _listed(lake: Lake) -> list[dict[str, object]]:
    return [json.loads(line) for line in _hold(lake, "list", "--json").stdout.splitlines()]


def _held(lake: Lake, name: TableName, tokens: Sequence[str] | None = None) -> str | None:
    """Return what refuses to remove rows of a table; None if nothing does."""
    table = history_of(lake, name)
    try:
        require_not_held(lake, table, tokens)
    except ConfigError as exc:
        return exc.message
    return None


def test_a_hold_is_in_force_until_it_is_released(lake: Lake) -> None:
    """It is listed, shown by `status`, and named by the refusal; afterwards both events are on record."""
    assert _hold(lake, "add", "case-17", "--table", "public.ord*", "--by", "jd", *_REASON).code == 0
    (listed,) = _listed(lake)
    shown = {"name": "case-17", "tables": "public.ord*", "token": None, "until": None, "by": "jd"}
    assert listed == {**shown, "since": listed["since"], "reason": "court order"}
    status = json.loads(run_here(["status", "--json", "--lake", lake.root]).stdout)
    assert status["holds"] == [listed]
    assert "case-17" in run_here(["status", "--lake", lake.root]).stdout
    assert "public.orders is held by case-17 since" in (_held(lake, ORDERS) or "")
    assert _held(lake, CUSTOMERS) is None
    assert _hold(lake, "release", "case-17", *_REASON).code == 0
    assert (_listed(lake), _held(lake, ORDERS)) == ([], None)
    events = [json.loads((lake.holds / f"00000{number}.json").read_text())["event"] for number in (0, 1)]
    assert events == [ADDED, RELEASED]


def test_a_hold_of_one_row_covers_that_row_only(lake: Lake) -> None:
    """Its record has a token and no key; who does not say which rows they mean is refused."""
    assert _hold(lake, "add", "one", "--table", "customers", "--key", "1", *_REASON).code == 0
    secret = make_secret(lake)
    (listed,) = _listed(lake)
    assert listed["token"] == token(secret, CUSTOMERS, ["1"])
    assert _held(lake, CUSTOMERS, [token(secret, CUSTOMERS, ["1"])]) is not None
    assert _held(lake, CUSTOMERS, [token(secret, CUSTOMERS, ["2"])]) is None
    assert _held(lake, CUSTOMERS) is not None
    assert '"1"' not in (lake.holds / "000000.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["add", "x", "--table", "public.nothing", *_REASON], 2, "no table of this lake matches public.nothing"),
        (["add", "x", "--table", "public.*", "--key", "1", *_REASON], 2, "--key is of one table"),
        (["add", "x", "--table", "orders", "--key", "99", *_REASON], 7, "no row of public.orders ever had this key"),
        (["add", "x", "--table", "orders", "--key", "a", *_REASON], 2, "not a valid integer"),
        (["add", "x", "--table", "orders"], 2, "needs a name and --reason"),
        (["add", "x", "--table", "orders", "--reason", " "], 2, "the reason is missing"),
        (["add", "x", *_REASON], 2, "needs --table"),
        (["add", "../x", "--table", "orders", *_REASON], 2, "is no name for a hold"),
        (["add", "x", "--table", "orders", "--until", "2020-01-01", *_REASON], 2, "is not in the future"),
        (["add", "x", "--table", "orders", "--until", "0/100", *_REASON], 2, "is no time at which a hold could end"),
        (["release", "x", *_REASON], 2, "there is no hold x in force"),
    ],
)
def test_what_means_nothing_is_refused_before_it_is_recorded(
    lake: Lake, arguments: list[str], code: int, message: str
) -> None:
    """Nothing is written."""
    done = _hold(lake, *arguments)
    assert (done.code, message in done.stderr) == (code, True), done.stderr
    assert list(lake.holds.glob("*")) == []


def test_a_name_is_in_use_until_its_hold_ends(lake: Lake) -> None:
    """A second hold of the same name is refused, and allowed after the release."""
    add = ("add", "x", "--table", "orders", *_REASON)
    assert [_hold(lake, *add).code, _hold(lake, *add).code] == [0, 2]
    assert [_hold(lake, "release", "x", *_REASON).code, _hold(lake, *add).code] == [0, 0]


def test_a_hold_ends_by_itself() -> None:
    """At its end, not before."""
    event = HoldEvent(ADDED, "x", "public.orders", None, 2_000, "r", "me", 1_000)
    assert in_force_at([event], 1_999) == [event]
    assert in_force_at([event], 2_000) == []


def test_patterns_match_names_as_postgresql_has_them() -> None:
    """A pattern without a schema is of the tables of all schemas."""
    weird = TableName("My Schema", "T.1")
    assert all(matches(pattern, weird) for pattern in ("*.*", "My Schema.T.1", "My*.*"))
    assert matches("orders", ORDERS)
    assert not matches("orders", TableName("public", "orders_old"))


def test_no_hold_begins_while_rows_are_removed(lake: Lake) -> None:
    """The command that removes them holds the lock; a process has one lock only once, so another process is asked."""
    with held_lock(lake, "forget", Stage.ERASE):
        done = run(["hold", "add", "x", "--table", "orders", *_REASON, "--lake", str(lake.root)])
    assert done.code == 6
    assert "holds the lock of erase" in done.stderr
    assert holds_in_force(lake, time.time_ns() // 1000) == []


@pytest.mark.crash
def test_a_killed_command_has_recorded_its_event_once(lake: Lake) -> None:
    """The hold is in force, or released, and sealed; the command again is refused."""
    add = ("hold", "add", "x", "--table", "orders", *_REASON, "--lake", str(lake.root))
    release = ("hold", "release", "x", *_REASON, "--lake", str(lake.root))
    for number, arguments in enumerate((add, release)):
        assert run(arguments, {"AUDITLAKE_FAILPOINT": After.HOLD_RECORDED}).code == -9
        assert [each["name"] for each in _listed(lake)] == ["x"][number:]
        assert run_here(arguments).code == 2
        assert found(compared(lake, sealed(lake))) == []
        rows = read_entries(lake, f"kind = '{Kind.HOLD}'").num_rows
        assert (rows, len(list(lake.holds.glob("*.json")))) == (number + 1, number + 1)


def test_holds_are_sealed(lake: Lake) -> None:
    """A record that is changed or removed after a digest is found."""
    assert _hold(lake, "add", "x", "--table", "orders", *_REASON).code == 0
    digest = sealed(lake)
    assert found(compared(lake, digest)) == []
    record = lake.holds / "000000.json"
    content = json.loads(record.read_text())
    overwrite(record, json.dumps({**content, "until_us": content["time_us"] + 1}).encode())
    assert found(compared(lake, digest)) == [("changed row", "holds", 0, None)]
    record.unlink()
    assert found(compared(lake, digest)) == [("removed row", "holds", 0, None)]


def test_a_damaged_record_is_reported(lake: Lake) -> None:
    """Nothing may take a lake for one without holds."""
    assert _hold(lake, "add", "x", "--table", "orders", *_REASON).code == 0
    overwrite(lake.holds / "000000.json", b"{")
    assert _hold(lake, "list").code == 6
