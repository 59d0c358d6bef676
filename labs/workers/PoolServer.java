import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.Executors;

/**
 * The JDK's HTTP server: one thread selects, and a pool's threads call another service for each
 * request.
 *
 * <p>PoolServer UPSTREAM THREADS
 */
final class PoolServer {
    private static String host;
    private static int port;
    private static final ThreadLocal<Socket> UPSTREAM =
            ThreadLocal.withInitial(PoolServer::connect);

    private PoolServer() {}

    public static void main(String[] args) throws IOException {
        int colon = args[0].lastIndexOf(':');
        host = args[0].substring(0, colon);
        port = Integer.parseInt(args[0].substring(colon + 1));
        InetAddress loopback = InetAddress.getLoopbackAddress();
        HttpServer server = HttpServer.create(new InetSocketAddress(loopback, 0), 128);
        server.createContext("/", PoolServer::answer);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[1])));
        server.start();
        long pid = ProcessHandle.current().pid();
        String ready = pid + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
        Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    private static Socket connect() {
        try {
            Socket socket = new Socket(host, port);
            socket.setTcpNoDelay(true);
            return socket;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Asks the other service and waits for its answer. */
    private static void fetchReport() throws IOException {
        Socket upstream = UPSTREAM.get();
        byte[] question = "GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
        upstream.getOutputStream().write(question);
        if (upstream.getInputStream().read(new byte[4096]) < 0) {
            throw new IOException("the upstream has gone");
        }
    }

    /** Here the pool's threads read what they answer: a request is read when it has a thread. */
    private static void answer(HttpExchange exchange) throws IOException {
        double read = now();
        fetchReport();
        String format = "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}";
        String moments = String.format(Locale.ROOT, format, read, read, now());
        byte[] body = moments.getBytes(StandardCharsets.US_ASCII);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
