import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Deque;
import java.util.Locale;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.LinkedTransferQueue;

/**
 * A server with a thread for each client, whose requests keep their database connection.
 *
 * <p>HeldServer kept|apart DATABASE CONNECTIONS
 *
 * <p>With `kept` a request gives its connection back when it has been answered: across the call to
 * the other service, after which it has no query. With `apart` it gives it back after its query,
 * before the call. As many requests as there are connections get as far as the call, so that no
 * more are open to the other service, which may have any number.
 */
final class HeldServer {
    private static final byte[] QUERY = ascii("GET /call HTTP/1.1\r\nHost: peer\r\n\r\n");

    /** The connections to the database. Who asks first gets one first. */
    private static final class Pool {
        // It hands what is put to who waits for longest: with a fair lock, others come before.
        private final BlockingQueue<Socket> free = new LinkedTransferQueue<>();

        Pool(String host, int port, int size) throws IOException {
            for (int at = 0; at < size; at++) {
                free.add(connect(host, port));
            }
        }

        Socket take() throws IOException {
            try {
                return free.take();
            } catch (InterruptedException error) {
                throw new IOException(error);
            }
        }

        void give(Socket connection) {
            free.add(connection);
        }
    }

    /** What a request has to do with the database. It takes a connection when it needs one. */
    private static final class Session {
        private final Pool pool;
        private Socket connection;
        private double begun;

        Session(Pool pool) {
            this.pool = pool;
        }

        void findProduct() throws IOException {
            connection = pool.take();
            begun = now();
            ask(connection);
        }

        void close() {
            if (connection != null) {
                pool.give(connection);
                connection = null;
            }
        }
    }

    private final boolean apart;
    private final Pool database;
    private final int servicePort;
    private final Deque<Socket> services = new ConcurrentLinkedDeque<>();

    private HeldServer(boolean apart, Pool database, int servicePort) {
        this.apart = apart;
        this.database = database;
        this.servicePort = servicePort;
    }

    public static void main(String[] args) throws IOException {
        String[] address = args[1].split(":");
        int port = Integer.parseInt(address[1]);
        Pool database = new Pool(address[0], port, Integer.parseInt(args[2]));
        HeldServer server = new HeldServer(args[0].equals("apart"), database, port);
        ServerSocket listener = new ServerSocket(0, 128, InetAddress.getByName("127.0.0.1"));
        String where = ProcessHandle.current().pid() + " 127.0.0.1:" + listener.getLocalPort();
        Files.writeString(Path.of(System.getenv("READY_FILE")), where + "\n");
        while (true) {
            Socket client = listener.accept();
            Thread thread = new Thread(() -> server.converse(client));
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void converse(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            while (receiveUntil(client, "\r\n\r\n")) {
                Session session = new Session(database);
                client.getOutputStream().write(answer(session));
                session.close();
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private byte[] answer(Session session) throws IOException {
        double read = now();
        session.findProduct();
        if (apart) {
            session.close();
        }
        String call = findPrice();
        String format = "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f,\"calls\":[%s]}";
        String body = String.format(Locale.ROOT, format, read, session.begun, now(), call);
        return ascii("HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body);
    }

    private String findPrice() throws IOException {
        Socket kept = services.poll();
        Socket connection = kept != null ? kept : connect("127.0.0.2", servicePort);
        double begun = now();
        ask(connection);
        double ended = now();
        services.push(connection);
        return String.format(Locale.ROOT, "[%.3f,%.3f]", begun, ended);
    }

    private static Socket connect(String host, int port) throws IOException {
        Socket connection = new Socket(host, port);
        connection.setTcpNoDelay(true);
        return connection;
    }

    private static void ask(Socket connection) throws IOException {
        connection.getOutputStream().write(QUERY);
        if (!receiveUntil(connection, "ok")) {
            throw new IOException("the peer closed the connection");
        }
    }

    /** Reads up to this; false when the other side has closed the connection. */
    private static boolean receiveUntil(Socket connection, String end) throws IOException {
        InputStream from = connection.getInputStream();
        ByteArrayOutputStream received = new ByteArrayOutputStream();
        byte[] piece = new byte[4096];
        do {
            int length = from.read(piece);
            if (length < 0) {
                return false;
            }
            received.write(piece, 0, length);
        } while (!received.toString(StandardCharsets.US_ASCII).endsWith(end));
        return true;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }
}
