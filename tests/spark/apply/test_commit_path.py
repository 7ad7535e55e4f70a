"""Tests of commits through Spark: none replaces another, and a commit whose reply was lost is recognized."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import auditlake.apply.merge as merging
from auditlake.apply.merge import Plan
from auditlake.errors import ConfigError
from auditlake.spark import log_store as logstore
from tests.model import Insert, Update
from tests.s3_server import chosen_lake
from tests.spark.apply.harness import Source, all_rows, apply_as, the_history
from tests.spark.apply.test_fold_cases import A, B, row, snapshot, stream

pytestmark = pytest.mark.spark

_LATE = """
package auditlake;

public class Overtaken implements java.util.Iterator {
    private final java.nio.file.Path entry;
    private boolean done;

    public Overtaken(String entry) {
        this.entry = java.nio.file.Paths.get(entry, new String[0]);
    }

    public boolean hasNext() {
        return !this.done;
    }

    public Object next() {
        try {
            java.nio.file.Files.write(this.entry, "theirs".getBytes(), new java.nio.file.OpenOption[0]);
        } catch (java.io.IOException error) {
            throw new RuntimeException(error);
        }
        this.done = true;
        return "{}";
    }

    public void remove() {
    }
}
"""


def put(spark: SparkSession, entry: Path, actions: Any) -> None:
    """Write an entry through the log store that Delta uses for this path."""
    jvm = spark._jvm  # noqa: SLF001 - the only way to it
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same
    kind = jvm.java.lang.Class.forName(logstore.CLASS, True, loader)
    store = kind.getConstructors()[0].newInstance(_array(spark, configuration))
    store.write(jvm.org.apache.hadoop.fs.Path(str(entry)), actions, False, configuration)


def _array(spark: SparkSession, value: Any) -> Any:
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the only way to it
    assert gateway is not None
    array = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    array[0] = value
    return array


def overtaken(spark: SparkSession, entry: Path) -> Any:
    """Return actions; while they are written, another process commits the entry."""
    jvm = spark._jvm  # noqa: SLF001 - the only way to it
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.cook(_LATE)
    kind = compiler.getClassLoader().loadClass("auditlake.Overtaken")
    return kind.getConstructors()[0].newInstance(_array(spark, str(entry)))


def test_an_entry_of_another_process_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own store checks before it writes, and replaces an entry that appears in between."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    entry = log / f"{1:020}.json"
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        put(spark, entry, overtaken(spark, entry))
    assert entry.read_text() == "theirs"
    assert [file.name for file in log.iterdir()] == [entry.name]


def test_our_own_entry_is_recognized(spark: SparkSession, tmp_path: Path) -> None:
    """The same content at the same version means that only the reply to the first request was lost."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    entry = log / f"{1:020}.json"
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    for _ in range(2):
        put(spark, entry, jvm.java.util.Collections.singletonList('{"commitInfo":{"txnId":"1"}}').iterator())
    assert entry.read_text() == '{"commitInfo":{"txnId":"1"}}\n'
    assert entry.stat().st_mode & 0o777 == 0o640


def test_an_entry_that_adds_a_missing_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A vacuum deletes the files of a process that was suspended before its commit for longer than files are kept."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    add = {"path": "gone.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": False}
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    with pytest.raises(Py4JJavaError) as refused:
        put(spark, log / f"{1:020}.json", jvm.java.util.Collections.singletonList(json.dumps({"add": add})).iterator())
    assert logstore.is_vacuumed(refused.value)
    assert list(log.iterdir()) == []


@pytest.mark.parametrize(
    ("age_s", "data_change", "is_refused"), [(60, False, True), (60, True, False), (-60, False, False)]
)
def test_an_optimize_with_a_fence_after_its_files_is_refused(
    spark: SparkSession, tmp_path: Path, age_s: int, *, data_change: bool, is_refused: bool
) -> None:
    """Even if a vacuum has not deleted them yet; other commits conflict with the fence themselves."""
    log, now_s = tmp_path / "_delta_log", int(time.time())
    log.mkdir()
    (tmp_path / "new.parquet").touch()
    for version, operation in enumerate(["CREATE TABLE", logstore.FENCE, "WRITE"]):
        info = {"commitInfo": {"timestamp": 1, "operation": operation}}
        (log / f"{version:020}.json").write_text(f"{json.dumps(info)}\n")
    written = {"modificationTime": 1000 * (now_s - age_s), "dataChange": data_change}
    add = {"add": {"path": "new.parquet", "partitionValues": {}, "size": 1, **written}}
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    actions = jvm.java.util.Collections.singletonList(json.dumps(add)).iterator()
    if is_refused:
        with pytest.raises(Py4JJavaError) as refused:
            put(spark, log / f"{3:020}.json", actions)
        assert logstore.is_vacuumed(refused.value)
    else:
        put(spark, log / f"{3:020}.json", actions)
    assert len(list(log.iterdir())) == (3 if is_refused else 4)


def test_a_commit_whose_reply_is_lost_is_not_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of appended rows; `tests/release` has the other plans."""
    check_lost_reply(spark, tmp_path, monkeypatch, Plan.APPEND)


def check_lost_reply(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """The tail is in the history once, and the moved position is not reported as a conflict."""
    source = Source(chosen_lake(folder / "lake"))
    change = Insert(B, row("b")) if plan is Plan.APPEND else Update(A, A, row("b"))
    stream(source, snapshot(A), {110: [change]})
    written = merging._one_applier  # noqa: SLF001 - the context that judges failures

    @contextmanager
    def losing(*arguments: Any) -> Iterator[None]:
        with written(*arguments):
            yield
            raise PySparkException("the reply was lost")

    monkeypatch.setattr(merging, "_one_applier", losing)
    apply_as(spark, source.lake, 110, plan)
    assert the_history(source.lake).position == 110
    assert len(all_rows(spark, source.lake)) == 2


def test_a_session_with_another_log_store_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits could replace those of other processes."""
    monkeypatch.setitem(logstore.SETTINGS, logstore.SETTING, "auditlake.Other")
    with pytest.raises(ConfigError, match="logStore"):
        logstore.require_safe_commits(spark)
