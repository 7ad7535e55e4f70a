"""Delta's log stores for local tables and for S3, under which no commit of Spark replaces another process's.

Delta's own store for `file:` checks whether the entry of a version exists and then renames over it; its lock works in
one JVM only. A commit of another process between the two is lost. `LinkLogStore` puts the entry in place with link(2),
which fails if the name exists, as `log_writer.put_commit` does. So all committers of a lake share one primitive,
put-if-absent:

I1  The entry of a version is never replaced once it exists, whichever process or JVM writes it, and however long it
    pauses in between. A JVM whose Python parent was killed may still commit: as the next version, or not at all.
I2  The entry exists only after the files that it adds and its own content are on the disk.
I3  A writer that gets an error after its entry appeared recognizes the entry as its own by its content, which holds a
    unique id (`txnId` in `commitInfo`).

Every commit that is planned conflicts with the one that is made before a vacuum (`lake/compaction`, `fence`), except an
OPTIMIZE, which Delta then makes as the next version, whatever the fence contains. A vacuum may delete its files before
or after that, if it was suspended for longer than they are kept. So the stores refuse an OPTIMIZE with a fence between
the time of its files and its version. All entries before a version exist when it is attempted, and never change: a
fence is either among them, or comes later, and then the vacuum reads of these files in the log. They also refuse a
commit whose files are missing.

In S3, `PutLogStore` does the same by a put with the condition that the key is absent. Delta's own store for S3 checks
and then puts, and Hadoop's `create(path, overwrite=False)` does so too: of two processes both succeed, and the second
wins (measured with hadoop-aws 3.5.0, 2026-11, `tests/release/test_s3_commits.py`). An object is complete once it
exists, so I2 needs no more there.

By I1, Delta's conflict detection and `delta_version + 1` in `apply/deletion_vector_writer.py` see every commit of every
process. No lock is needed, so none can be held by a process that hangs. Delta selects a store by the scheme of a path.

Committers of a lake: `log_writer.put_commit` (capture's tables, creation, bootstrap, deletion vectors, compaction, new
columns) and Delta's writers in Spark (`apply/merge.py`: MERGE, append, REPLACE ON; `lake/maintenance.py`: OPTIMIZE),
which `require_safe_commits` this store. Spark's vacuum makes no commit. deltalake only reads, and writes checkpoints.

The class is compiled in the JVM by Janino, which Spark brings for its own generated code: no build step, no jar.

Authority: Delta's PROTOCOL.md, "Delta Log Entries"; delta-storage, io.delta.storage.LogStore; docs.delta.io, "Storage
configuration"
"""

import atexit
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zipfile import ZipFile

from auditlake.errors import ConfigError

_JOINED = r"""
    /** Join the actions, each on a line; `added` gets those that add a file. */
    private static byte[] joined(Iterator actions, List added) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            String action = (String) actions.next();
            if (action.startsWith("{\"add\":")) {
                added.add(action);
            }
            content.write(action.getBytes("UTF-8"));
            content.write('\n');
        }
        return content.toByteArray();
    }
"""

_UNFENCED = r"""
    /** Refuse files that are older than a fence: a vacuum may take them for those of a killed process. */
    private void requireUnfenced(Path path, List added, Configuration configuration) throws IOException {
        long written = Long.MAX_VALUE;
        for (Iterator each = added.iterator(); each.hasNext();) {
            AddFile file = (AddFile) Action.fromJson((String) each.next());
            if (!file.dataChange()) { // other commits conflict with a fence
                written = Math.min(written, file.modificationTime());
            }
        }
        FileSystem files = path.getFileSystem(configuration);
        long version = written == Long.MAX_VALUE ? 0 : Long.parseLong(path.getName().substring(0, 20));
        while (--version >= 0) {
            Path before = new Path(path.getParent(), String.format("%020d.json", new Object[] {Long.valueOf(version)}));
            try {
                if (files.getFileStatus(before).getModificationTime() < written) {
                    return;
                }
            } catch (FileNotFoundException expired) {
                throw new FileNotFoundException("VACUUMED " + path);
            }
            CloseableIterator actions = read(before, configuration);
            try {
                while (actions.hasNext()) {
                    String action = (String) actions.next();
                    boolean isFence = action.contains("\"FENCE\"") || action.contains("\"ERASE\"");
                    if (action.startsWith("{\"commitInfo\"") && isFence) {
                        throw new FileNotFoundException("VACUUMED " + path);
                    }
                }
            } finally {
                actions.close();
            }
        }
    }
"""

_LINK_STORE = r"""
package auditlake;

import io.delta.storage.CloseableIterator;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;

/** Delta's log store for local files: puts an entry if its version is absent. log_store.py explains and compiles it. */
public class LinkLogStore extends io.delta.storage.LocalLogStore {
    public LinkLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) { // _last_checkpoint and checksums, which are derived from the entries
            super.write(path, actions, overwrite, configuration);
            return;
        }
        List added = new ArrayList();
        byte[] content = joined(actions, added);
        for (Iterator each = added.iterator(); each.hasNext();) { // before any reader can see them
            AddFile file = (AddFile) Action.fromJson((String) each.next());
            try {
                syncAdded(path.getParent().getParent(), file);
            } catch (NoSuchFileException deleted) {
                throw new FileNotFoundException("VACUUMED " + file.path());
            }
        }
        requireUnfenced(path, added, configuration);
        java.nio.file.Path entry = local(path);
        java.nio.file.Path unfinished = entry.resolveSibling("." + UUID.randomUUID() + ".unfinished");
        try {
            Files.createFile(unfinished, new FileAttribute[] {
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-r-----"))});
            Files.write(unfinished, content, new OpenOption[] {StandardOpenOption.WRITE});
            sync(unfinished);
            link(entry, unfinished, content);
            sync(entry.getParent());
        } finally {
            Files.deleteIfExists(unfinished);
        }
    }

    /** Link the entry to its name. An error after which the entry holds our bytes is a reply that was lost. */
    private static void link(java.nio.file.Path entry, java.nio.file.Path unfinished, byte[] content)
            throws IOException {
        try {
            Files.createLink(entry, unfinished);
        } catch (IOException error) {
            if (!holds(entry, content)) {
                throw error;
            }
        }
    }

    private static boolean holds(java.nio.file.Path entry, byte[] content) throws IOException {
        try {
            return Arrays.equals(Files.readAllBytes(entry), content);
        } catch (NoSuchFileException absent) {
            return false;
        }
    }

    /* joined */

    private static void syncAdded(Path table, AddFile added) throws IOException {
        sync(new Path(URI.create(added.path())), table);
        if (added.deletionVector() != null && added.deletionVector().isOnDisk()) {
            sync(added.deletionVector().absolutePath(table), table);
        }
    }

    private static void sync(Path file, Path table) throws IOException {
        java.nio.file.Path local = local(file.isAbsolute() ? file : new Path(table, file));
        sync(local);
        sync(local.getParent());
    }

    private static void sync(java.nio.file.Path file) throws IOException {
        FileChannel channel = FileChannel.open(file, new OpenOption[] {StandardOpenOption.READ});
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
    }

    private static java.nio.file.Path local(Path path) {
        return Paths.get(path.toUri().getPath(), new String[0]);
    }
}
"""

_PUT_STORE = r"""
package auditlake;

import io.delta.storage.CloseableIterator;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;

/** Delta's log store for S3: puts an entry if its version is absent. log_store.py explains and compiles it. */
public class PutLogStore extends io.delta.storage.S3SingleDriverLogStore {
    public PutLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) { // _last_checkpoint and checksums, which are derived from the entries
            super.write(path, actions, overwrite, configuration);
            return;
        }
        FileSystem files = path.getFileSystem(configuration);
        List added = new ArrayList();
        byte[] content = joined(actions, added);
        for (Iterator each = added.iterator(); each.hasNext();) {
            AddFile file = (AddFile) Action.fromJson((String) each.next());
            if (!file.dataChange()) { // others conflict with the commit that is made before a vacuum
                requireFile(files, path.getParent().getParent(), file);
            }
        }
        requireUnfenced(path, added, configuration);
        try {
            put(files, path, content);
        } catch (IOException error) {
            byte[] recorded = read(files, path);
            if (recorded == null) {
                throw error;
            }
            if (!Arrays.equals(recorded, content)) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static void requireFile(FileSystem files, Path table, AddFile added) throws IOException {
        Path file = new Path(URI.create(added.path()));
        try {
            files.getFileStatus(file.isAbsolute() ? file : new Path(table, file));
        } catch (FileNotFoundException deleted) {
            throw new FileNotFoundException("VACUUMED " + file);
        }
    }

    private static void put(FileSystem files, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.overwrite(false);
        builder.recursive();
        builder.must("fs.option.create.conditional.overwrite", true);
        FSDataOutputStream entry = (FSDataOutputStream) builder.build();
        entry.write(content);
        entry.close();
    }

    /* joined */

    /** Read an entry; null if there is none. */
    private static byte[] read(FileSystem files, Path path) throws IOException {
        FSDataInputStream entry;
        try {
            entry = files.open(path);
        } catch (FileNotFoundException absent) {
            return null;
        }
        try {
            ByteArrayOutputStream content = new ByteArrayOutputStream();
            byte[] buffer = new byte[65536];
            for (int length = entry.read(buffer); length >= 0; length = entry.read(buffer)) {
                content.write(buffer, 0, length);
            }
            return content.toByteArray();
        } finally {
            entry.close();
        }
    }
}
"""

FENCE = "VACUUM START"
"""Operation of the commit that is made before a vacuum; that of an erasure (`delta.erasing`) has the same effect."""
_VACUUMED = "deleted by a vacuum before its commit:"
SOURCE, S3_SOURCE = (
    store.replace("    /* joined */", f"{_JOINED}{_UNFENCED}".strip("\n"))
    .replace("VACUUMED", _VACUUMED)
    .replace("FENCE", FENCE)
    for store in (_LINK_STORE, _PUT_STORE)
)


if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

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
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


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
    """Require that commits of this session cannot replace those of other processes.

    Raises ConfigError if Spark was started without the log store, or with another one for all paths.
    """
    conf = spark.sparkContext.getConf()
    if (chosen := conf.get(_ONE_FOR_ALL, None)) is not None:
        raise ConfigError(f"{_ONE_FOR_ALL} is {chosen}, must not be set", f"Remove it from [spark]. {_HINT}")
    for setting, store in SETTINGS.items():
        if (chosen := conf.get(setting, None)) != store:
            raise ConfigError(f"{setting} is {chosen or 'not set'}, need {store}", _HINT)
