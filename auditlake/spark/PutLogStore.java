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

    /* shared methods */

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
