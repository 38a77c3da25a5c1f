import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Executes statements, one a line in JSON, and writes the rows of each as a line in JSON. */
public class FlinkStatements {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inBatchMode());
    flink.getConfig().set("parallelism.default", "1");
    try (PrintWriter to = new PrintWriter(arguments[1])) {
      for (String line : Files.readAllLines(Path.of(arguments[0]))) {
        String statement = json.readValue(line, String.class);
        System.out.println(statement);
        List<List<String>> rows = new ArrayList<>();
        // Not closed: of an insertion that has ended, Flink would then cancel a job that is gone.
        CloseableIterator<Row> found = flink.executeSql(statement).collect();
        while (found.hasNext()) {
          Row row = found.next();
          List<String> fields = new ArrayList<>();
          for (int at = 0; at < row.getArity(); at++) {
            fields.add(row.getField(at) == null ? null : row.getField(at).toString());
          }
          rows.add(fields);
        }
        to.println(json.writeValueAsString(rows));
      }
    }
    System.exit(0);
  }
}
