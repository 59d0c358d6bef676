import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server with a pool of four threads; each request does a little work. */
public final class HttpServerLab {
  public static void main(String[] args) throws IOException {
    InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        HttpServer server = HttpServer.create(address, 1024);
    server.createContext("/", HttpServerLab::answer);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    int port = server.getAddress().getPort();
        String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }

  private static void answer(HttpExchange exchange) throws IOException {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < 100; i++) {
      text.append(i).append(' ');
    }
    byte[] body = text.toString().getBytes(StandardCharsets.US_ASCII);
    exchange.sendResponseHeaders(200, body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }
}
