"""The alert rules and the dashboard, checked by promtool.

`make release` installs it (Debian's package `prometheus`). tests/release/test_firing_alerts.py runs the rules.
"""

import json
import subprocess
from pathlib import Path

import yaml  # type: ignore[import-untyped]

_CONF = Path(__file__).parents[2] / "conf"
_RULES = _CONF / "prometheus" / "auditlake.rules.yaml"


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
