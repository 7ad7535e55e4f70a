"""The endpoint of --metrics-port over the small lake: formats, values, absent gauges, health; no server, no JVM."""

import json
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from auditlake import counters
from auditlake.counters import Beat, Counter, Mark, advance, beat, count
from auditlake.engine import Engine
from auditlake.errors import ConfigError
from auditlake.follow import Applier
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lsn import Lsn
from auditlake.metrics.facts import LakeFactsReader, Shrinking
from auditlake.metrics.readings import Readings
from auditlake.metrics.server import _AT_A_TIME, _bound, exporting
from auditlake.spark.on_demand import SparkOnDemand
from tests.running import await_true
from tests.small_lake import ORDERS, T0_US, write_lake_with_manifest

Samples = Mapping[tuple[str, tuple[str, ...]], float]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with a process that has counted nothing."""
    for name in ("_beats", "_marks"):
        monkeypatch.setattr(counters, name, {})
    monkeypatch.setattr(counters, "_counts", defaultdict(float))


def ask(url: str, accept: str = "") -> tuple[int, str, str]:
    """Return status, content type and text of an answer."""
    try:
        with urlopen(Request(url, headers={"Accept": accept})) as answer:  # noqa: S310 - our own
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as exc:
        return exc.code, exc.headers["Content-Type"], exc.read().decode()


def samples(text: str) -> Samples:
    """Return the samples by name and values of labels."""
    found = (sample for family in prometheus(text) for sample in family.samples)
    return {(sample.name, tuple(sample.labels.values())): sample.value for sample in found}


@contextmanager
def exported(lake: Lake, *stages: Beat) -> Iterator[str]:
    """Export a lake; yield the URL without a path, once the lake has been read."""
    with exporting("127.0.0.1", 0, frozenset(stages), lake) as url:
        await_true(lambda: "\nauditlake_lake_up 1.0" in ask(url)[2])
        yield url.removesuffix("/metrics")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake."""
    return write_lake_with_manifest(tmp_path / "lake")


def test_both_formats_have_the_same_families(lake: Lake) -> None:
    """A scraper that asks for OpenMetrics gets it, and any other Prometheus's text."""
    with exported(lake, *Beat) as url:
        _, plain, text = ask(f"{url}/metrics")
        _, modern, other = ask(f"{url}/metrics", "application/openmetrics-text; version=1.0.0")
    assert (plain.split(";")[0], modern.split(";")[0]) == ("text/plain", "application/openmetrics-text")
    named = {family.name for family in prometheus(text) if family.name.startswith("auditlake")}
    parsed = openmetrics(other)  # type: ignore[no-untyped-call]
    assert {family.name for family in parsed if family.name.startswith("auditlake")} == {
        name.removesuffix("_info") for name in named
    }


@pytest.mark.parametrize("accept", ['application/openmetrics-text; version="1.0.0"', "text/plain; version=1.x", ";=,"])
def test_a_scraper_that_asks_for_no_known_format_gets_text(
    lake: Lake, accept: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its header is no bug of ours."""
    with exported(lake, Beat.SERVE) as url:
        status, kind, text = ask(f"{url}/metrics", accept)
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "auditlake_build" in text
    assert capfd.readouterr().err == ""


def _half_sent(url: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
    return connection


def test_half_sent_requests_keep_no_health_check_from_its_answer(lake: Lake) -> None:
    """The oldest of them is closed for another one: else a manager would end a process that is well."""
    with exported(lake, Beat.SERVE) as url, ExitStack() as held:
        connections = [held.enter_context(_half_sent(url)) for _ in range(20)]
        assert ask(f"{url}/healthz")[0] == 200
        assert connections[0].recv(1) == b""


def test_a_request_has_to_arrive_however_slowly_it_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte at a time exceeds no timeout of a socket."""
    monkeypatch.setattr("auditlake.metrics.server._REQUEST_S", 0.2)
    with exported(lake, Beat.SERVE) as url, _half_sent(url) as connection:
        connection.settimeout(0.01)

        def is_closed() -> bool:
            try:
                connection.sendall(b"x")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        await_true(is_closed)


def test_a_request_for_which_no_thread_can_be_started_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else later ones would wait for ever."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("http.server.ThreadingHTTPServer.process_request", fail)
    with _bound("127.0.0.1", 0, {}) as server:
        for _ in range(_AT_A_TIME):
            with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
                server.handle_request()
                assert connection.recv(1) == b""
        assert server._places.acquire(blocking=False)  # noqa: SLF001 - a further request would not end without it
    assert capfd.readouterr().err.count("unexpected RuntimeError") == _AT_A_TIME


def test_shows_positions_and_states_of_the_lake(lake: Lake) -> None:
    """The values are those of the small lake's docstring."""
    parked = Parked(ORDERS, Cause.SHAPE, Lsn(0x200), Lsn(0x250), "a reason", "a remedy", 0)
    park(lake, parked)
    with exported(lake, Beat.CAPTURE) as url:
        found = samples(ask(f"{url}/metrics")[2])
    assert found["auditlake_watermark_lsn", ()] == 0x300
    assert found["auditlake_acknowledged_lsn", ()] == 0x381
    assert found["auditlake_current_timestamp_seconds", ()] == T0_US / 1_000_000 + 100
    assert found["auditlake_tables", ("", "followed")] == 1
    assert found["auditlake_tables", ("shape", "parked")] == 1
    assert sum(value for (name, _), value in found.items() if name == "auditlake_tables") == 2
    assert found["auditlake_lake_info", ("d", "p", "s")] == 1
    assert found["auditlake_lake_free_bytes", ()] > 0


def test_a_gauge_that_is_not_known_is_absent(lake: Lake) -> None:
    """A process that neither applies nor reads a source shows neither lag nor slot."""
    with exported(lake, Beat.CAPTURE) as url:
        names = {name for name, _ in samples(ask(f"{url}/metrics")[2])}
    assert not {name for name in names if "slot" in name or "lag" in name or "applied" in name or "source_up" in name}


def test_counts_the_transactions_that_are_not_applied(lake: Lake) -> None:
    """Two commits, 0x250 and 0x300, are above 0x200; one is above 0x250."""
    for applied, pending in ((0x200, 2), (0x250, 1), (0x300, 0)):
        advance(Mark.APPLIED_LSN, applied)
        assert LakeFactsReader(lake).read().backlog == pending


def test_counters_begin_at_zero_with_every_label(lake: Lake) -> None:
    """The first increase of a counter is an increase."""
    with exported(lake, Beat.CAPTURE, Beat.APPLY, Beat.SERVE) as url:
        before = samples(ask(f"{url}/metrics")[2])
        count(Counter.APPLIED_CHANGES, "spark", 5)
        count(Counter.QUESTIONS, "duckdb")
        after = samples(ask(f"{url}/metrics")[2])
    of_spark, of_duckdb = ("auditlake_applied_changes_total", ("spark",)), ("auditlake_questions_total", ("duckdb",))
    assert (before[of_spark], before[of_duckdb]) == (0, 0)
    assert (after[of_spark], after[of_duckdb]) == (5, 1)


def test_no_label_has_a_value_of_the_lake(lake: Lake) -> None:
    """Neither names of tables nor LSNs nor values: labels are bounded whatever the lake holds."""
    beat(Beat.APPLY)
    with exported(lake, *Beat) as url:
        text = ask(f"{url}/metrics")[2]
    families = [family for family in prometheus(text) if family.name.startswith("auditlake")]
    assert len(families) > 20
    for sample in (sample for family in families for sample in family.samples):
        if sample.name != "auditlake_lake_info":
            assert set(sample.labels) <= {"stage", "state", "cause", "engine", "operation", "outcome", "version"}
    assert "orders" not in text
    assert "0/2" not in text


def test_alive_until_a_loop_stands_still(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has just begun is alive; a loop that has not run for too long is named."""
    with exported(lake, Beat.CAPTURE) as url:
        assert ask(f"{url}/healthz")[0] == 200
        beat(Beat.CAPTURE)
        assert ask(f"{url}/healthz")[0] == 200
        monkeypatch.setitem(counters._beats, Beat.CAPTURE, time.monotonic() - 1000)  # noqa: SLF001 - its clock
        status, _, text = ask(f"{url}/healthz")
    assert (status, text.startswith("capture has not run for 1000 s")) == (503, True)


def test_not_ready_before_the_first_run_and_while_behind(lake: Lake) -> None:
    """The reasons are listed; a stage that has done everything is ready."""
    with exported(lake, Beat.APPLY) as url:
        assert ask(f"{url}/readyz") == (
            503,
            "text/plain; charset=utf-8",
            "apply has not begun\napply is more than 300 s behind\n",
        )
        beat(Beat.APPLY)
        advance(Mark.APPLIED_TIME, time.time())
        assert ask(f"{url}/readyz")[0] == 200
    with exported(lake, Beat.CAPTURE) as url:
        beat(Beat.CAPTURE)
        assert "the slot has no reader" in ask(f"{url}/readyz")[2]


def test_other_paths_are_not_found(lake: Lake) -> None:
    """The answer names the paths that exist."""
    with exported(lake, Beat.SERVE) as url:
        assert ask(f"{url}/")[0] == 404


def test_a_port_in_use_is_named(lake: Lake) -> None:
    """A second process needs a port of its own."""
    with exported(lake, Beat.SERVE) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
            exporting("127.0.0.1", port, frozenset(), lake).__enter__()


def test_facts_that_cannot_be_read_become_unknown() -> None:
    """A failed reading leaves no old numbers behind, and the next one shows new ones."""
    outcomes = iter([7, None, 8])

    def read() -> int:
        outcome = next(outcomes)
        if outcome is None:
            raise OSError(5, "Input/output error")
        return outcome

    closed: list[int] = []
    readings = Readings("the lake", read, 60.0, lambda: closed.append(1))
    seen = []
    for _ in range(3):
        readings.read_once()
        seen.append(readings.facts)
    assert (seen, closed) == ([7, None, 8], [1])


def test_facts_of_a_reading_that_does_not_return_grow_old() -> None:
    """They are unknown after three intervals."""
    readings = Readings("the lake", lambda: 7, 0.01, lambda: None)
    readings.read_once()
    await_true(lambda: readings.facts is None)


def test_time_until_the_slot_is_lost() -> None:
    """From the rate of the last ten minutes; infinite while the reserve does not shrink, unknown without a limit."""
    shrinking = Shrinking()
    assert shrinking.left_s(0.0, 1000) == float("inf")
    assert shrinking.left_s(100.0, 900) == 900.0
    assert shrinking.left_s(200.0, 1000) == float("inf")
    assert shrinking.left_s(700.0, 500) == 750.0  # 900 bytes at 100 s: 400 bytes in 600 s
    assert shrinking.left_s(800.0, 0) == 0.0
    assert shrinking.left_s(900.0, None) is None


def test_apply_records_how_far_it_is(lake: Lake) -> None:
    """Both tables of the small lake are applied up to its watermark, without Spark."""
    begun = time.time()
    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None)
    applier.apply()
    assert counters.read_marks()[Mark.APPLIED_LSN] == 0x300
    assert counters.read_marks()[Mark.APPLIED_TIME] >= begun
    assert counters.read_counts()[Counter.APPLIED_BATCHES, "duckdb"] == 2
    assert counters.read_counts()[Counter.COMMITS, "apply"] == 2


def test_a_process_without_the_setting_does_not_import_the_library() -> None:
    """Metrics cost a command nothing that does not export them."""
    code = "import auditlake.cli.main, auditlake.capture.capture, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not [name for name in loaded if name.startswith(("prometheus_client", "auditlake.metrics"))]
