import com.sun.net.httpserver.HttpServer;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;
import javax.management.ObjectName;

/**
 * A server over com.sun.net.httpserver whose handler computes for 60 ms on a thread of its own.
 * With {@code --map} it has the virtual machine write down the names of what it has compiled.
 */
public final class BlameServer {
  private static final long RENDER_NS = 60_000_000;

  public static void main(String[] args) throws Exception {
    // Compiled for good before the first request comes: also when it is called for the first time.
    for (int i = 0; i < 20_000; i++) {
      renderThumbnail(10_000);
    }
    renderThumbnail(300_000_000);
    if (args.length > 0) {
      ObjectName commands = new ObjectName("com.sun.management:type=DiagnosticCommand");
      Path.of("/tmp/perf-" + ProcessHandle.current().pid() + ".map").toFile().deleteOnExit();
      ManagementFactory.getPlatformMBeanServer().invoke(commands, "compilerPerfmap", null, null);
    }
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
    server.setExecutor(Executors.newSingleThreadExecutor());
    server.createContext(
        "/",
        exchange -> {
          byte[] body = renderThumbnail(RENDER_NS).getBytes(StandardCharsets.US_ASCII);
          exchange.sendResponseHeaders(200, body.length);
          exchange.getResponseBody().write(body);
          exchange.close();
        });
    server.start();
    int port = server.getAddress().getPort();
    String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }

  /** For a fixed time: the promise shall not depend on the machine's speed. */
  private static String renderThumbnail(long nanoseconds) {
    long end = System.nanoTime() + nanoseconds;
    long pixels = 0;
    while (System.nanoTime() < end) {
      pixels = mix(pixels);
    }
    return "thumbnail " + (pixels & 1);
  }

  private static long mix(long pixels) {
    for (int pixel = 0; pixel < 10_000; pixel++) {
      pixels = pixels * 31 + pixel;
    }
    return pixels;
  }
}
