"""Delta's log stores for local tables and for S3, under which no commit of Spark replaces another process's.

Delta's own store for `file:` checks whether the entry of a version exists and then renames over it; its lock works in
one JVM only. A commit of another process between the two is lost. `LinkLogStore` puts the entry in place with link(2),
which fails if the name exists, so that Spark's commits keep the invariants I1 to I3 of `delta.log_writer`:

I1  An entry is never replaced, whichever process or JVM writes it, and however long it pauses in between. A JVM whose
    Python parent was killed may still commit: as the next version, or not at all.
I2  The entry exists only after the files that it adds and its own content are on the disk.
I3  A writer that gets an error after its entry appeared recognizes it by its `txnId`.

So Delta's conflict detection, and a commit of ours at the version after the one that was read, see every commit of
every process. No lock is needed, so none can be held by a process that hangs.

A vacuum may delete the files of a commit that was suspended for longer than they are kept. Every commit that is planned
conflicts with the fence before it (`lake.compaction`), except an OPTIMIZE, which Delta then makes as the next version.
So the stores refuse an OPTIMIZE with a fence between the time of its files and its version, and any commit whose files
are missing. All entries before a version exist when it is attempted: a fence is among them, or the vacuum reads of
these files in the log.

In S3, `PutLogStore` does the same by a put with the condition that the key is absent. Delta's own store for S3 checks
and then puts, as Hadoop's `create(path, overwrite=False)` does: of two processes both succeed, and the second wins
(hadoop-aws 3.5.0, 2026-11, `tests/release/test_s3_commits.py`). An object is complete once it exists.

The Java files are compiled in the JVM by Janino, which Spark brings for its own generated code: no build step, no jar.
It knows no generics. Delta selects a store by the scheme of a path; Delta's writers require ours
(`require_safe_commits`). Spark's vacuum makes no commit; deltalake only reads, and writes checkpoints.

Authority: Delta's PROTOCOL.md, "Delta Log Entries"; delta-storage, io.delta.storage.LogStore; docs.delta.io, "Storage
configuration"
"""

import atexit
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zipfile import ZipFile

from auditlake.errors import ConfigError
from auditlake.store.process_folder import remove_own

FENCE = "VACUUM START"
"""Operation of the commit that is made before a vacuum; that of an erasure (`delta.erasing`) has the same effect."""
_VACUUMED = "deleted by a vacuum before its commit:"
if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def _source(store: str) -> str:
    """Return the Java of a log store, with the methods that both have, and the words of this module."""
    java = Path(__file__).with_name
    shared = java("SharedMethods.java").read_text().partition("    // begin\n")[2].partition("    // end\n")[0]
    text = java(f"{store}.java").read_text().replace("    /* shared methods */\n", shared)
    return text.replace("VACUUMED", _VACUUMED).replace("FENCE", FENCE)


SOURCE, S3_SOURCE = _source("LinkLogStore"), _source("PutLogStore")
CLASS, S3_CLASS = "auditlake.LinkLogStore", "auditlake.PutLogStore"
_LOCAL = re.compile(r"local(\[.*\])?")
SETTING = "spark.delta.logStore.file.impl"
SETTINGS = {SETTING: CLASS, **{f"spark.delta.logStore.{scheme}.impl": S3_CLASS for scheme in ("s3", "s3a")}}
"""Spark's settings for both stores."""
_ONE_FOR_ALL = "spark.delta.logStore.class"
_HINT = "Start Spark through auditlake: `auditlake.spark.session.spark_session` or the `auditlake` command."


def install(context: "SparkContext") -> None:
    """Compile the log store and load it into the class loader that Delta looks in, on a cluster of every executor.

    Executors commit nothing, but they list files through the log store.

    Raises ConfigError if that class loader takes no classes.
    """
    jvm = cast("Any", context)._gateway.jvm  # noqa: SLF001 - there is no public way to it
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if not hasattr(loader, "addURL"):
        raise ConfigError(f"Spark runs in a class loader ({loader.getClass().getName()}) that takes no classes", _HINT)
    folder = Path(tempfile.mkdtemp(prefix="auditlake-classes-"))
    jar = folder / "auditlake-log-store.jar"
    with ZipFile(jar, "w") as archive:
        for source in (SOURCE, S3_SOURCE):
            for name, content in _compiled(jvm, loader, source).items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(content))
    loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    jvm.java.lang.Class.forName(CLASS, True, loader)
    if _LOCAL.fullmatch(str(context.master)):
        shutil.rmtree(folder)
    else:  # executors fetch it from here, whenever they start
        cast("Any", context)._jsc.addJar(str(jar))  # noqa: SLF001 - there is no public way to it
        atexit.register(remove_own, folder, os.getpid())


def is_vacuumed(failure: Exception) -> bool:
    """Return whether a commit was refused because a vacuum had deleted its files."""
    return _VACUUMED in str(failure)


def _compiled(jvm: Any, loader: Any, source: str) -> Any:  # noqa: ANN401 - objects of the JVM
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return compiler.getBytecodes()


def require_safe_commits(spark: "SparkSession") -> None:
    """Require the log stores, without which commits could replace others'; raises ConfigError."""
    conf = spark.sparkContext.getConf()
    if (chosen := conf.get(_ONE_FOR_ALL, None)) is not None:
        raise ConfigError(f"{_ONE_FOR_ALL} is {chosen}, must not be set", f"Remove it from [spark]. {_HINT}")
    for setting, store in SETTINGS.items():
        if (chosen := conf.get(setting, None)) != store:
            raise ConfigError(f"{setting} is {chosen or 'not set'}, need {store}", _HINT)
