import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * One thread accepts and hands connections to a pool, whose threads each keep one until its client
 * closes it.
 *
 * <pre>KeptServer WORKERS read|limited</pre>
 *
 * limited: a worker waits for its client for a minute at most.
 */
public final class KeptServer {
    private static final int LIMIT_MS = 60_000;
    private static final int WORK_MS = 3;

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(arguments[0]));
        boolean limited = arguments[1].equals("limited");
        try (ServerSocket listener = new ServerSocket(0, 128, InetAddress.getLoopbackAddress());
                FileWriter ready = new FileWriter(System.getenv("READY_FILE"))) {
            ready.write(ProcessHandle.current().pid() + " 127.0.0.1:" + listener.getLocalPort());
            ready.write("\n");
            ready.close();
            while (true) {
                Socket connection = listener.accept();
                connection.setTcpNoDelay(true);
                connection.setSoTimeout(limited ? LIMIT_MS : 0);
                pool.execute(() -> keep(connection));
            }
        }
    }

    private static void keep(Socket connection) {
        try (connection) {
            while (readRequest(connection.getInputStream())) {
                double read = System.nanoTime() / 1e6;
                // Long enough to be recorded: so it shows who serves.
                Thread.sleep(WORK_MS);
                String body =
                        String.format(
                                "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}",
                                read, read, System.nanoTime() / 1e6);
                String head = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n";
                byte[] reply = (head + body).getBytes(StandardCharsets.US_ASCII);
                connection.getOutputStream().write(reply);
            }
        } catch (IOException | InterruptedException gone) {
            // A client that goes away is no news.
        }
    }

    /** A request with its body: the fault. False: the client has gone. */
    private static boolean readRequest(InputStream input) throws IOException {
        StringBuilder head = new StringBuilder();
        while (!head.toString().endsWith("\r\n\r\n")) {
            int read = input.read();
            if (read < 0) {
                return false;
            }
            head.append((char) read);
        }
        int body = 0;
        for (String line : head.toString().split("\r\n")) {
            if (line.toLowerCase().startsWith("content-length:")) {
                body = Integer.parseInt(line.substring("content-length:".length()).trim());
            }
        }
        return input.readNBytes(body).length == body;
    }
}
