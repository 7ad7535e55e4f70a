"""Alert rules and dashboard use only metrics that exist, and each rule has a test; tests/release runs promtool."""

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from auditlake.counters import Beat, Mark, advance, beat
from auditlake.lake.manifest import Manifest
from auditlake.lake.positions import Positions
from auditlake.lsn import Lsn
from auditlake.metrics.exposition import Sources, make_registry
from auditlake.metrics.facts import LakeFacts, SlotFacts
from auditlake.source.slot import SlotState

_ROOT = Path(__file__).parents[3]
_CONF = _ROOT / "conf"
_METRIC = re.compile(r"\b(?:auditlake|process)_[a-z_]+\b")
_SLOT = SlotState("pgoutput", "shop", False, False, 7, Lsn(1), "reserved", 1, 1, False, False, None, Lsn(9))
_LAKE = LakeFacts(Manifest("7", 1, "shop", "s", "p"), Positions(1, Lsn(5), Lsn(6), 7), {}, "running", 1, 1)


def exported_names() -> set[str]:
    """Return the names of all samples of a process that runs every stage and knows every fact."""
    for stage in Beat:
        beat(stage)
    for of in Mark:
        advance(of, 1)
    sources = Sources(frozenset(Beat), lambda: _LAKE, lambda: SlotFacts(_SLOT, 1, 1.0))
    return {sample.name for family in make_registry(sources).collect() for sample in family.samples}


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    (group,) = yaml.safe_load((_CONF / "prometheus" / "auditlake.rules.yaml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard."""
    return list(json.loads((_CONF / "grafana" / "auditlake.json").read_text())["panels"])


def expressions() -> list[str]:
    """Return every expression of the dashboard, with its variable filled in."""
    return [target["expr"].replace("$job", ".*") for panel in panels() for target in panel["targets"]]


def test_every_metric_of_an_expression_exists() -> None:
    """A metric that was renamed must be renamed in rules and dashboard."""
    exported = exported_names()
    used = {name for text in [*expressions(), *(rule["expr"] for rule in rules())] for name in _METRIC.findall(text)}
    assert used - exported == set()


def test_every_metric_is_documented() -> None:
    """docs/monitoring.md lists each by name."""
    text = (_ROOT / "docs" / "monitoring.md").read_text()
    ours = {name for name in exported_names() if name.startswith("auditlake") and not name.endswith("_created")}
    assert {name for name in ours if f"`{name}`" not in text} == set()


def test_every_documented_metric_exists() -> None:
    """docs/monitoring.md and the tests of the rules name no others."""
    documents = [_ROOT / "docs" / "monitoring.md", _CONF / "prometheus" / "auditlake.rules.test.yaml"]
    named = {name for document in documents for name in _METRIC.findall(document.read_text())}
    assert named - exported_names() == set()


def test_every_alert_has_a_test_and_is_documented() -> None:
    """Each name is in auditlake.rules.test.yaml and in docs/monitoring.md."""
    tested = (_CONF / "prometheus" / "auditlake.rules.test.yaml").read_text()
    documented = (_ROOT / "docs" / "monitoring.md").read_text()
    for rule in rules():
        assert rule["alert"] in tested, rule["alert"]
        assert f"`{rule['alert']}`" in documented, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]


@pytest.mark.parametrize("stage", ["capture", "apply"])
def test_a_stage_without_a_process_has_an_alert(stage: str) -> None:
    """Its series end with it, so only absent() finds that."""
    absent = f'absent(auditlake_heartbeat_timestamp_seconds{{stage="{stage}"}})'
    assert [rule["alert"] for rule in rules() if rule["expr"] == absent]


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    """Their ids are unique and their places free."""
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    for one, other in combinations([panel["gridPos"] for panel in found], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
    assert all(one["y"] <= other["y"] for one, other in pairwise(panel["gridPos"] for panel in found))
