package auditlake;

import io.delta.storage.CloseableIterator;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;

/** Methods that log_store.py inserts into both log stores, at their comment "shared methods". */
abstract class SharedMethods extends io.delta.storage.LogStore {
    SharedMethods(Configuration configuration) {
        super(configuration);
    }

    // begin
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
    // end
}
