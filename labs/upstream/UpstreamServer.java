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
 * <p>{@code UpstreamServer virtual|threads UPSTREAM [--pool N] [--held] [--calls N] [--work-ms N]
 * [--forward]}: the options are those of the other servers. Each connection has a virtual thread,
 * or one of the platform's; and a connection to the other service of its own, unless there is a
 * pool.
 */
public final class UpstreamServer {
  private static final String PATH = "/report";

  private final String[] upstream;
  private final BlockingQueue<Socket> pool;
  private final ReentrantLock lock;
  private final int calls;
  private final double workMs;
  /** The call has the request's path, and its reply says when it was given. */
  private final boolean forwards;

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
    forwards = options.contains("--forward");
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
      for (String path; (path = receivePath(client.getInputStream(), buffer)) != null; ) {
        double read = nowMs();
        String forwarded = forwards ? path : PATH;
        List<double[]> made = new ArrayList<>();
        for (int n = 0; n < calls; n++) {
          made.add(own == null ? fetchFromPool(forwarded) : fetchWithLock(own, forwarded));
        }
        double work = nowMs();
        computeAnswer(workMs);
        client.getOutputStream().write(answer(read, made, work));
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

  private double[] fetchFromPool(String path) throws IOException, InterruptedException {
    Socket connection = pool.take();
    try {
      return fetchReport(connection, path);
    } finally {
      pool.add(connection);
    }
  }

  private double[] fetchWithLock(Socket connection, String path) throws IOException {
    if (lock == null) {
      return fetchReport(connection, path);
    }
    lock.lock();
    try {
      return fetchReport(connection, path);
    } finally {
      lock.unlock();
    }
  }

  /** The call, from when there is a connection until its reply is read. */
  private double[] fetchReport(Socket connection, String path) throws IOException {
    String call = "GET " + path + " HTTP/1.1\r\nHost: upstream\r\n\r\n";
    byte[] reply = new byte[4096];
    double begun = nowMs();
    connection.getOutputStream().write(call.getBytes(StandardCharsets.US_ASCII));
    int length = connection.getInputStream().read(reply);
    double ended = nowMs();
    if (length <= 0) {
      Runtime.getRuntime().halt(1);
    }
    if (!forwards) {
      return new double[] {begun, ended};
    }
    String[] said = new String(reply, 0, length, StandardCharsets.US_ASCII).split("\\s+");
    return new double[] {begun, ended, Double.parseDouble(said[said.length - 1])};
  }

  private static void computeAnswer(double milliseconds) {
    for (double end = nowMs() + milliseconds; nowMs() < end; ) {
      Thread.onSpinWait();
    }
  }

  /** The path that is asked for, of all up to an empty line; null when the connection ends. */
  private static String receivePath(InputStream from, byte[] buffer) throws IOException {
    for (int length = 0; ; ) {
      int got = from.read(buffer, length, buffer.length - length);
      if (got <= 0) {
        return null;
      }
      length += got;
      String head = new String(buffer, 0, length, StandardCharsets.US_ASCII);
      if (head.endsWith("\r\n\r\n")) {
        return head.split(" ", 3)[1];
      }
    }
  }

  private byte[] answer(double read, List<double[]> made, double work) {
    StringBuilder list = new StringBuilder();
    for (double[] call : made) {
      list.append(list.length() > 0 ? ",[" : "[");
      for (int n = 0; n < call.length; n++) {
        list.append(String.format(Locale.ROOT, n > 0 ? ",%.6f" : "%.6f", call[n]));
      }
      list.append("]");
    }
    String body =
        String.format(
            Locale.ROOT,
            "{\"read\":%.6f,\"begun\":%.6f,\"ended\":%.6f,\"calls\":[%s]",
            read, made.get(0)[0], made.get(made.size() - 1)[1], list);
    if (forwards) {
      body += String.format(Locale.ROOT, ",\"work\":%.6f,\"answered\":%.6f", work, nowMs());
    }
    body += "}";
    String head = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n";
    return (head + body).getBytes(StandardCharsets.US_ASCII);
  }

  /** The clock that all processes of a machine share. */
  private static double nowMs() {
    return System.nanoTime() / 1e6;
  }
}
