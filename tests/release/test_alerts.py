"""Alert rules in Prometheus's own tools: promtool checks rules and dashboard, a server sees a killed capture.

`make release` installs both (Debian's package `prometheus`).
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from tests import command
from tests.capture_lake import make_lake
from tests.running import await_true

_CONF = Path(__file__).parents[2] / "conf"
_RULES = _CONF / "prometheus" / "auditlake.rules.yaml"
_PORT = 19_097


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """Run promtool, which has to succeed; return its output."""
    done = subprocess.run(["promtool", *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False)  # noqa: S607 - Debian's
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_are_valid_and_pass_their_tests() -> None:
    """Every alert fires for its cause, and none for a healthy lake."""
    promtool("check", "rules", _RULES)
    promtool("test", "rules", _CONF / "prometheus" / "auditlake.rules.test.yaml")


def test_every_expression_of_the_dashboard_parses(tmp_path: Path) -> None:
    """Each is checked as the expression of a recording rule."""
    dashboard = json.loads((_CONF / "grafana" / "auditlake.json").read_text())
    found = [target["expr"].replace("$job", ".*") for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(found)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", file)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[None]:
    """Run a server that scrapes a target every second, with the alert rules and no time before they fire."""
    rules = yaml.safe_load(_RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    scraped = {"job_name": "auditlake", "static_configs": [{"targets": [target]}]}
    times = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings = {"global": times, "rule_files": ["rules.yaml"], "scrape_configs": [scraped]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    started = subprocess.Popen(
        [  # noqa: S607 - Debian's
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{_PORT}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with started as process:
        try:
            yield
        finally:
            process.terminate()


def asked(path: str) -> Any:
    """Return the data of an answer of the server; None while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{_PORT}/api/v1/{path}") as answer:
            return json.load(answer)["data"]
    except URLError:
        return None


def firing() -> set[str]:
    """Return the names of the alerts that fire."""
    data = asked("alerts")
    return {each["labels"]["alertname"] for each in data["alerts"] if each["state"] == "firing"} if data else set()


def is_scraped() -> bool:
    """Return whether the target answers scrapes, and says so of its lake."""
    data = asked("query?query=auditlake_current_timestamp_seconds")
    return bool(data and data["result"])


@pytest.mark.pg
def test_a_killed_capture_raises_its_alerts(database: str, tmp_path: Path) -> None:
    """While it runs, nothing that concerns it fires; after SIGKILL, its series end, and both alerts fire."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    with command.start(["capture", *settings, "--metrics-port", "0", "--log-format", "json"]) as process:
        assert process.stderr is not None
        url = json.loads(process.stderr.readline())["message"].removeprefix("metrics are at ")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with prometheus(tmp_path, url.removeprefix("http://").removesuffix("/metrics")):
            apart = {"AuditlakeApplyGone", "AuditlakeDiskFull"}  # no apply runs, and the disk is that of the machine
            await_true(lambda: is_scraped() and firing() <= apart, 60)
            process.kill()
            process.wait(30)
            await_true(lambda: {"AuditlakeDown", "AuditlakeCaptureGone"} <= firing(), 60)
