"""Spark Connect: answer questions on a Spark server elsewhere, without a JVM here.

A session of Spark Connect has DataFrames and SQL, but no object of the JVM: no SparkContext, no log store. So it reads
a lake and never commits: `spark_session` refuses it for every stage. The server needs Delta, and must reach the lake
under the same name (S3, or a folder mounted at the same path); for `exact_text` its Python needs auditlake.

A DataFrame here is an unresolved plan, which the server analyses again for every call. So a temporary view must live as
long as what reads it (`query.sql.plan`).

Authority: spark.apache.org/docs/4.2.0/spark-connect-overview.html; Spark's client-connection-string.md
"""

from __future__ import annotations  # types of Spark are imported for mypy only

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pyarrow as pa

from auditlake.errors import ConfigError, LakeUnusable
from auditlake.extras import CONNECT

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

REMOTE = "spark.remote"
"""Spark's setting for the URL of the server, which may contain a token."""
_VARIABLE = "SPARK_REMOTE"
_PORT = 15002
_TIMEOUT_S = 10.0
# What decides about values, as in `spark.session`; all else is the server's choice.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NO_DELTA = ("DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_DATA_SOURCE")


def remote_of(settings: Mapping[str, str]) -> str | None:
    """Return the URL of the server that the settings or the environment name."""
    return settings.get(REMOTE) or os.environ.get(_VARIABLE) or None


def is_connected(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def open_session(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Open a session on the server with the settings of sessions; raises ConfigError, without the token of a URL."""
    where = _reachable(url)
    try:
        import grpc  # type: ignore[import-untyped] # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ConfigError("Spark Connect needs packages that are not installed", _INSTALL) from None
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only with Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    try:
        spark = SparkSession.builder.remote(url).create()
        for name, value in {**_SETTINGS, **_of_session(settings)}.items():
            spark.conf.set(name, value)
    except PySparkException as exc:
        reason = exc.getCondition() or type(exc).__name__
        raise ConfigError(f"the Spark Connect server at {where} refused a session: {reason}", _LOG) from None
    return spark


_INSTALL = f"{CONNECT.command}."
_LOG = "Its log has the reason."


def _of_session(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a session may have; Hadoop's under their own names, as sessions pass them on."""
    hadoop = "spark.hadoop."
    chosen = {name: value for name, value in settings.items() if name.startswith(("spark.sql.", "spark.auditlake."))}
    return chosen | {name.removeprefix(hadoop): value for name, value in settings.items() if name.startswith(hadoop)}


def _reachable(url: str) -> str:
    """Return host and port of the server, which accepts connections: Spark's client would retry for minutes."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, port = None, 0
    if parts.scheme != "sc" or not host:
        raise ConfigError("the URL of the Spark Connect server is not understood", "Write it as sc://host:port.")
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError as exc:
        raise ConfigError(
            f"no Spark Connect server answers at {host}:{port}: {exc.strerror or exc}",
            "Start one (docs/cluster.md), or correct --remote.",
        ) from None
    return f"{host}:{port}"


def refuse_connect(settings: Mapping[str, str]) -> None:
    """Refuse Spark Connect where Spark must commit, or run tasks; raises ConfigError."""
    if remote_of(settings) is not None:
        origin = REMOTE if settings.get(REMOTE) else _VARIABLE
        raise ConfigError(
            f"{origin} is set: Spark Connect can only answer questions (sql, shell, auditlake.read)",
            f"Unset {origin} for this command, and set spark.master, or submit a job (docs/cluster.md).",
        )


def analysed(rows: DataFrame) -> DataFrame:
    """Return the rows, analysed by Spark, which raises its errors here; a server does so only if asked for a schema."""
    if is_connected(rows.sparkSession):
        _ = rows.schema
    return rows


def record_batches(rows: DataFrame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Fetch the rows as the server computes them.

    `DataFrame.toArrow` collects the same messages; the client's iterator has no public name in Python.
    """
    plan, client = cast("Any", rows)._plan, cast("Any", rows.sparkSession).client  # noqa: SLF001 - see above
    for part in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
        if isinstance(part, pa.Table):
            yield from part.rename_columns(schema.names).cast(schema).to_batches()


def server_heap_bytes(spark: SparkSession) -> int:
    """Return the heap of the server's driver, or of its executors where theirs is smaller, by its settings."""
    driver = _bytes(str(spark.conf.get("spark.driver.memory", "1g")))
    if str(spark.conf.get("spark.master", "")).startswith("local"):
        return driver
    return min(driver, _bytes(str(spark.conf.get("spark.executor.memory", "1g"))))


def _bytes(text: str) -> int:
    matched = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", text.strip().lower())
    return int(matched[1]) * _UNITS[matched[2]] if matched else 1 << 30


def is_of_server(exc: PySparkException) -> bool:
    """Return whether an exception came from a Spark Connect server."""
    return type(exc).__module__.startswith("pyspark.errors.exceptions.connect")


def server_failure(exc: PySparkException) -> ConfigError:
    """Return the error for a server that failed; Spark's text is not shown, it may quote rows."""
    reason = exc.getCondition() or type(exc).__name__
    return ConfigError(f"the Spark Connect server failed: {reason}", _LOG)


@contextmanager
def lake_errors(spark: SparkSession, lake: object) -> Iterator[None]:
    """Turn errors of a server about our own plans, which name files of the lake, into AuditlakeErrors."""
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415 - only with Spark

    try:
        yield
    except AnalysisException as exc:
        if not is_connected(spark):
            raise
        reason = exc.getCondition() or type(exc).__name__
        if reason in _NO_DELTA:
            raise ConfigError(f"the Spark Connect server has no Delta ({reason})", _NEEDS_DELTA) from exc
        raise LakeUnusable(f"the Spark Connect server cannot read {lake}: {reason}", _NEEDS_LAKE) from exc
    except PySparkException as exc:
        if not is_of_server(exc):
            raise
        raise server_failure(exc) from exc


_NEEDS_DELTA = "Start it with Delta's jars and settings (docs/cluster.md)."
_NEEDS_LAKE = "It must reach the lake under the same name: in S3, or in a folder mounted at the same path."
