import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/**
 * A server whose own background threads want its CPU: as many as its argument says merge segments
 * all the time. Each request is 4 ms of computing.
 */
public final class Own {
  private static volatile long sum;

  public static void main(String[] args) throws Exception {
    for (int i = 0; i < 20_000; i++) {
      mergeSegments(1000);
    }
    int compactors = Integer.parseInt(args[0]);
    for (int i = 0; i < compactors; i++) {
      Thread thread = new Thread(Own::compact, "compactor-" + i);
      thread.setDaemon(true);
      thread.start();
    }
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.createContext(
        "/",
        exchange -> {
          renderPage();
          exchange.sendResponseHeaders(200, 4);
          exchange.getResponseBody().write("page".getBytes());
          exchange.close();
        });
    server.start();
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }

  private static void compact() {
    while (true) {
      mergeSegments(50_000_000);
    }
  }

  private static void mergeSegments(long count) {
    long merged = 0;
    for (long i = 0; i < count; i++) {
      merged = merged * 31 + i;
    }
    sum = merged;
  }

  private static void renderPage() {
    mergeSegments(4_000_000);
  }
}
