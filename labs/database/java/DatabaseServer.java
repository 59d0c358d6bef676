import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A server that asks a database for each request and answers with what became of it when.
 *
 * <p>{@code DatabaseServer DATABASE CONNECTIONS}: with HikariCP, whose maximumPoolSize that is, and
 * a thread for each client.
 */
public final class DatabaseServer {
  private static final String QUERY = "SELECT pg_sleep(0.05)";

  private final HikariDataSource pool;

  private DatabaseServer(String database, int connections) {
    HikariConfig config = new HikariConfig();
    config.setJdbcUrl("jdbc:postgresql://" + database + "/postgres?sslmode=disable");
    config.setUsername("postgres");
    config.setMaximumPoolSize(connections);
    pool = new HikariDataSource(config);
    // It makes the first one, and the others in the background.
    while (pool.getHikariPoolMXBean().getTotalConnections() < connections) {
      Thread.onSpinWait();
    }
  }

  public static void main(String[] args) throws IOException {
    DatabaseServer server = new DatabaseServer(args[0], Integer.parseInt(args[1]));
    ExecutorService threads = Executors.newCachedThreadPool();
    ServerSocket listener = new ServerSocket(0, 1024, InetAddress.getLoopbackAddress());
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + listener.getLocalPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    while (true) {
      Socket client = listener.accept();
      threads.execute(() -> server.converse(client));
    }
  }

  /** Serves a client, keep-alive, until it goes. */
  private void converse(Socket client) {
    try (client) {
      client.setTcpNoDelay(true);
      byte[] buffer = new byte[4096];
      while (receiveHead(client.getInputStream(), buffer)) {
        double read = nowMs();
        double[] call = fetchReport();
        client.getOutputStream().write(answer(read, call));
      }
    } catch (IOException | SQLException gone) {
      System.err.println("DatabaseServer: " + gone);
    }
  }

  /** The query, from when it has a connection until its rows are read. */
  private double[] fetchReport() throws SQLException {
    try (Connection connection = pool.getConnection()) {
      double begun = nowMs();
      try (Statement statement = connection.createStatement();
          ResultSet rows = statement.executeQuery(QUERY)) {
        rows.next();
      }
      return new double[] {begun, nowMs()};
    }
  }

  /** All that comes up to an empty line; false when the connection ends. */
  private static boolean receiveHead(InputStream from, byte[] buffer) throws IOException {
    for (int length = 0; ; ) {
      int got = from.read(buffer, length, buffer.length - length);
      if (got <= 0) {
        return false;
      }
      length += got;
      if (new String(buffer, 0, length, StandardCharsets.US_ASCII).endsWith("\r\n\r\n")) {
        return true;
      }
    }
  }

  private static byte[] answer(double read, double[] call) {
    String body =
        String.format(
            Locale.ROOT,
            "{\"read\":%.6f,\"begun\":%.6f,\"ended\":%.6f}",
            read, call[0], call[1]);
    String head = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n";
    return (head + body).getBytes(StandardCharsets.US_ASCII);
  }

  /** The clock that all processes of a machine share. */
  private static double nowMs() {
    return System.nanoTime() / 1e6;
  }
}
