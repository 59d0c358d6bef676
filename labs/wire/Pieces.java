import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server: it writes the head of a response, and then the body. */
public final class Pieces {
  private static final byte[] BODY = "{}".repeat(32).getBytes(StandardCharsets.US_ASCII);

  private Pieces() {}

  private static void answer(HttpExchange exchange) throws IOException {
    exchange.sendResponseHeaders(200, BODY.length);
    try (OutputStream body = exchange.getResponseBody()) {
      body.write(BODY);
    }
  }

  public static void main(String[] args) throws IOException {
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
    server.createContext("/", Pieces::answer);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.start();
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }
}
