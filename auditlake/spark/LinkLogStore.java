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

    /* shared methods */

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
