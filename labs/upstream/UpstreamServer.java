import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A server that asks another service for each request and answers with what became of it when.
 *
 * <p>{@code UpstreamServer virtual|threads UPSTREAM [--pool N] [--held] [--calls N] [--work-ms N]}:
 * the options are those of the other servers. Each connection has a virtual thread, or one of the
 * platform's; and a connection to the other service of its own, unless there is a pool.
 */
public final class UpstreamServer {
  private static final byte[] CALL =
      "GET /report HTTP/1.1\r\nHost: upstream\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

  private final String[] upstream;
  private final BlockingQueue<Socket> pool;
  private final ReentrantLock lock;
  private final int calls;
  private final double workMs;

  private UpstreamServer(String address, List<String> options) throws IOException {
    upstream = address.split(":");
    int connections = Integer.parseInt(option(options, "--pool", "0"));
    pool = connections > 0 ? new ArrayBlockingQueue<>(connections) : null;
    for (int n = 0; n < connections; n++) {
      pool.add(connect());
    }
    lock = options.contains("--held") ? new ReentrantLock() : null;
    calls = Integer.parseInt(option(options, "--calls", "1"));
    workMs = Double.parseDouble(option(options, "--work-ms", "0"));
  }

  private static String option(List<String> options, String name, String otherwise) {
    int at = options.lastIndexOf(name);
    return at < 0 ? otherwise : options.get(at + 1);
  }

  public static void main(String[] args) throws Exception {
    List<String> options = Arrays.asList(args).subList(2, args.length);
    UpstreamServer server = new UpstreamServer(args[1], options);
    ExecutorService threads =
        args[0].equals("virtual") ? virtualThreads() : Executors.newCachedThreadPool();
    ServerSocket listener = new ServerSocket(0, 1024, InetAddress.getLoopbackAddress());
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + listener.getLocalPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    while (true) {
      Socket client = listener.accept();
      threads.execute(() -> server.converse(client));
    }
  }

  /** By its name: there are none in the JDK that the labs are compiled for. */
  private static ExecutorService virtualThreads() throws ReflectiveOperationException {
    return (ExecutorService)
        Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
  }

  /** Serves a client, keep-alive, until it goes. */
  private void converse(Socket client) {
    try (client) {
      client.setTcpNoDelay(true);
      Socket own = pool == null ? connect() : null;
      byte[] buffer = new byte[4096];
      while (receiveHead(client.getInputStream(), buffer)) {
        double read = nowMs();
        List<double[]> made = new ArrayList<>();
        for (int n = 0; n < calls; n++) {
          made.add(own == null ? fetchFromPool() : fetchWithLock(own));
        }
        computeAnswer(workMs);
        client.getOutputStream().write(answer(read, made));
      }
      if (own != null) {
        own.close();
      }
    } catch (IOException | InterruptedException gone) {
      System.err.println("UpstreamServer: " + gone);
    }
  }

  private Socket connect() throws IOException {
    Socket socket = new Socket(upstream[0], Integer.parseInt(upstream[1]));
    socket.setTcpNoDelay(true);
    return socket;
  }

  private double[] fetchFromPool() throws IOException, InterruptedException {
    Socket connection = pool.take();
    try {
      return fetchReport(connection);
    } finally {
      pool.add(connection);
    }
  }

  private double[] fetchWithLock(Socket connection) throws IOException {
    if (lock == null) {
      return fetchReport(connection);
    }
    lock.lock();
    try {
      return fetchReport(connection);
    } finally {
      lock.unlock();
    }
  }

  /** The call, from when there is a connection until its reply is read. */
  private static double[] fetchReport(Socket connection) throws IOException {
    double begun = nowMs();
    connection.getOutputStream().write(CALL);
    if (connection.getInputStream().read(new byte[4096]) <= 0) {
      Runtime.getRuntime().halt(1);
    }
    return new double[] {begun, nowMs()};
  }

  private static void computeAnswer(double milliseconds) {
    for (double end = nowMs() + milliseconds; nowMs() < end; ) {
      Thread.onSpinWait();
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

  private static byte[] answer(double read, List<double[]> made) {
    StringBuilder list = new StringBuilder();
    for (double[] call : made) {
      list.append(list.length() > 0 ? "," : "");
      list.append(String.format(Locale.ROOT, "[%.6f,%.6f]", call[0], call[1]));
    }
    String body =
        String.format(
            Locale.ROOT,
            "{\"read\":%.6f,\"begun\":%.6f,\"ended\":%.6f,\"calls\":[%s]}",
            read, made.get(0)[0], made.get(made.size() - 1)[1], list);
    String head = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n";
    return (head + body).getBytes(StandardCharsets.US_ASCII);
  }

  /** The clock that all processes of a machine share. */
  private static double nowMs() {
    return System.nanoTime() / 1e6;
  }
}
