import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/**
 * Asks another service for each request, and answers without it when that takes too long to
 * connect: ADDRESS [breaker]. With a breaker it asks no more once it gave up.
 */
public final class Asks {
  private static final byte[] BODY = "{}".getBytes(StandardCharsets.US_ASCII);
  private static final int GIVE_UP_MS = 250;

  private static InetSocketAddress peer;
  private static boolean breaker;
  private static volatile boolean down;

  private Asks() {}

  private static void connectToPeer() throws IOException {
    try (Socket socket = new Socket()) {
      socket.connect(peer, GIVE_UP_MS);
    } catch (SocketTimeoutException e) {
      down = breaker;
    }
  }

  private static void answer(HttpExchange exchange) throws IOException {
    if (!down) {
      connectToPeer();
    }
    exchange.sendResponseHeaders(200, BODY.length);
    try (OutputStream body = exchange.getResponseBody()) {
      body.write(BODY);
    }
  }

  public static void main(String[] args) throws IOException {
    String[] address = args[0].split(":");
    peer = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
    breaker = args.length > 1;
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
    server.createContext("/", Asks::answer);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.start();
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }
}
