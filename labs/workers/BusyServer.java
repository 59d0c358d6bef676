import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.Executors;

/**
 * The JDK's HTTP server: one thread selects, and a pool's threads compute for each request, as long
 * as it takes one thread alone to do so for so long.
 *
 * <p>BusyServer THREADS MILLISECONDS
 */
final class BusyServer {
    private static long rounds;

    private BusyServer() {}

    public static void main(String[] args) throws IOException {
        rounds = roundsOf(Integer.parseInt(args[1]));
        InetAddress loopback = InetAddress.getLoopbackAddress();
        HttpServer server = HttpServer.create(new InetSocketAddress(loopback, 0), 128);
        server.createContext("/", BusyServer::answer);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(args[0])));
        server.start();
        long pid = ProcessHandle.current().pid();
        String ready = pid + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
        Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    /** How many rounds take so long, once they have been compiled. */
    private static long roundsOf(int milliseconds) {
        long most = 20_000_000;
        double quickest = Double.MAX_VALUE;
        for (int i = 0; i < 8; i++) {
            double begun = now();
            priceBasket(most);
            quickest = Math.min(quickest, now() - begun);
        }
        return (long) (most * milliseconds / quickest);
    }

    private static long priceBasket(long times) {
        long price = 1;
        for (long i = 0; i < times; i++) {
            price = price * 6364136223846793005L + (price >>> 33);
        }
        return price;
    }

    private static void answer(HttpExchange exchange) throws IOException {
        double read = now();
        long price = priceBasket(rounds);
        String format = "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f,\"price\":%d}";
        String moments = String.format(Locale.ROOT, format, read, read, now(), price);
        byte[] body = moments.getBytes(StandardCharsets.US_ASCII);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
