"""Commits of Spark to a Delta table in S3, run by test_s3_commits in a process that has a JVM of its own.

python -m tests.release.s3_commits stores URL     two log stores, each overtaken between its check and its put
python -m tests.release.s3_commits missing URL    an entry that adds a file that does not exist
python -m tests.release.s3_commits race URL       Spark and `put_commit` commit to one table at once
"""

import json
import sys
import threading
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from auditlake.delta.log_writer import put_commit
from auditlake.delta.table import open_table
from auditlake.spark import log_store
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark
from auditlake.store.place import Remote, parse_url

_COMMITS = 8
_DELTAS = "io.delta.storage.S3SingleDriverLogStore"
_OVERTAKEN = """
package auditlake;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;

public class Overtaken implements java.util.Iterator {
    private final String entry;
    private final Configuration configuration;
    private boolean done;

    public Overtaken(String entry, Configuration configuration) {
        this.entry = entry;
        this.configuration = configuration;
    }

    public boolean hasNext() {
        return !this.done;
    }

    public Object next() {
        try {
            Path path = new Path(this.entry);
            FSDataOutputStream out = path.getFileSystem(this.configuration).create(path, true);
            out.write("theirs".getBytes());
            out.close();
        } catch (java.io.IOException error) {
            throw new RuntimeException(error);
        }
        this.done = true;
        return "ours";
    }

    public void remove() {
    }
}
"""


def _instance(spark: SparkSession, kind: Any, *arguments: Any) -> Any:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the only way to it
    array = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        array[place] = argument
    return kind.getConstructors()[0].newInstance(array)


def _store(spark: SparkSession, name: str) -> Any:
    """Return a log store of this class."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return _instance(spark, jvm.java.lang.Class.forName(name, True, loader), spark._jsc.hadoopConfiguration())  # noqa: SLF001


def stores(spark: SparkSession, folder: Remote) -> None:
    """Print the content of the entry after both log stores wrote it at the same time as another process."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(loader)
    compiler.cook(_OVERTAKEN)
    iterator = compiler.getClassLoader().loadClass("auditlake.Overtaken")
    for name in (log_store.S3_CLASS, _DELTAS):
        entry = folder / name / "_delta_log" / f"{1:020}.json"
        store = _store(spark, name)
        actions = _instance(spark, iterator, str(entry), configuration)
        try:
            store.write(jvm.org.apache.hadoop.fs.Path(str(entry)), actions, False, configuration)
            raised = "nothing"
        except Exception as exc:  # noqa: BLE001 - whatever Java throws
            raised = "FileAlreadyExistsException" if "FileAlreadyExistsException" in str(exc) else str(exc)
        print(name, raised, entry.read_text().strip())  # noqa: T201 - read by the test


def missing(spark: SparkSession, folder: Remote) -> None:
    """Print whether an entry of a compaction is refused because its file was deleted, and whether the entry exists."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same
    store = _store(spark, log_store.S3_CLASS)
    entry = folder / "missing" / "_delta_log" / f"{1:020}.json"
    add = {"path": "gone.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": False}
    actions = jvm.java.util.Collections.singletonList(json.dumps({"add": add})).iterator()
    refused = False
    try:
        store.write(jvm.org.apache.hadoop.fs.Path(str(entry)), actions, False, configuration)
    except Py4JJavaError as exc:
        refused = log_store.is_vacuumed(exc)
    print(refused, entry.exists())  # noqa: T201 - read by the test


def race(spark: SparkSession, folder: Remote) -> None:
    """Print the number of commits made by both, and the version and rows of the table afterwards."""
    table = folder / "race"
    rows = spark.range(10).toDF("n").coalesce(1)
    rows.write.format("delta").save(str(table))
    made = [0]

    def commit() -> None:
        version = 1
        while made[0] < 3 * _COMMITS:
            try:
                put_commit(table, version, "WRITE", [])
                made[0] += 1
            except FileExistsError:
                pass
            version += 1

    other = threading.Thread(target=commit)
    other.start()
    for _ in range(_COMMITS):
        rows.write.format("delta").mode("append").save(str(table))
    other.join()
    delta = open_table(table)
    print(made[0] + _COMMITS, delta.version(), spark.read.format("delta").load(str(table)).count())  # noqa: T201


if __name__ == "__main__":
    place = parse_url(sys.argv[2])
    session = spark_session({"spark.master": "local[2]", "spark.driver.memory": "1g", **settings_for_spark(place)})
    {"stores": stores, "missing": missing, "race": race}[sys.argv[1]](session, place)
