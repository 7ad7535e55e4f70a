"""Spark on demand: a JVM that one batch needed is given back, never one that is in use or was asked for."""

import pytest

from auditlake.engine import Engine
from auditlake.errors import Unsupported
from auditlake.extras import Extra
from auditlake.spark import session
from auditlake.spark.on_demand import SparkOnDemand


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the start and the end of Spark; return when it ended."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "spark_session", lambda _: None)
    at: list[float] = []
    monkeypatch.setattr(session, "end_session", lambda: at.append(_now[0]))
    return at


_now = [0.0]


def rest_at(spark: SparkOnDemand, *moments: float) -> None:
    """Rest between batches that end at these moments."""
    for _now[0] in moments:
        spark.rest()


def on_demand(engine: Engine, master: str = "local[2]") -> SparkOnDemand:
    """Return a Spark that is given back after 300 s, by a clock that stands still."""
    return SparkOnDemand({"spark.master": master}, engine, 300.0, lambda: _now[0])


def test_an_idle_jvm_ends_once(ended: list[float]) -> None:
    """The time begins at the end of the last batch that needed it, and batches without it do not prolong it."""
    spark = on_demand(Engine.AUTO)
    rest_at(spark, 0.0, 1000.0)
    assert not ended
    spark()
    rest_at(spark, 1010.0, 1200.0)
    spark()
    rest_at(spark, 1210.0, 1509.0)
    assert not ended
    rest_at(spark, 1510.0, 1511.0, 9000.0)
    assert ended == [1510.0]
    spark()
    rest_at(spark, 9001.0, 9301.0)
    assert ended == [1510.0, 9301.0]


@pytest.mark.parametrize(
    "spark", [on_demand(Engine.SPARK), on_demand(Engine.AUTO, "spark://host:7077")], ids=["demanded", "cluster"]
)
def test_a_jvm_that_every_batch_needs_stays(ended: list[float], spark: SparkOnDemand) -> None:
    """Also while the source is idle: the next change needs it again."""
    spark()
    rest_at(spark, 0.0, 10_000.0)
    assert not ended


def test_duckdb_never_starts_a_jvm(ended: list[float]) -> None:
    """What would need one fails."""
    spark = on_demand(Engine.DUCKDB)
    with pytest.raises(Unsupported, match="needs Spark") as refusal:
        spark()
    assert refusal.value.hint == "Give --engine auto, with Spark installed (pip install 'auditlake[spark]')."
    rest_at(spark, 0.0, 10_000.0)
    assert not ended


def test_auto_without_spark_installed_is_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a table that only Spark can fold is parked, and `follow` goes on; a cluster's master still asks for Spark."""
    monkeypatch.setattr("auditlake.engine.SPARK", Extra("spark", "", "no_such_module"))
    assert Engine.AUTO.on("local[2]", submitted=False) is Engine.DUCKDB
    assert Engine.AUTO.on("spark://host:7077", submitted=False) is Engine.SPARK
    assert Engine.SPARK.on("local[2]", submitted=False) is Engine.SPARK
