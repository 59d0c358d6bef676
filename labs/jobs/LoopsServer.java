import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Several threads that each have a selector, and one pool to which all of them hand their jobs.
 *
 * <p>LoopsServer THREADS
 *
 * <p>Of four clients three ask for a report, which takes 60 ms of sleep; the fourth one asks for a
 * thumbnail.
 */
final class LoopsServer {
    private static final int LOOPS = 3;
    private static ExecutorService pool;

    private LoopsServer() {}

    /** A thread with a selector: its connections, and the answers that it has to write. */
    private static final class Loop implements Runnable {
        private final Selector selector = Selector.open();
        private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();

        Loop() throws IOException {}

        void execute(Runnable task) {
            tasks.add(task);
            selector.wakeup();
        }

        void add(SocketChannel connection) {
            execute(() -> {
                try {
                    connection.configureBlocking(false);
                    connection.socket().setTcpNoDelay(true);
                    connection.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(4096));
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            });
        }

        @Override
        public void run() {
            try {
                while (true) {
                    selector.select();
                    Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
                    while (keys.hasNext()) {
                        SelectionKey key = keys.next();
                        keys.remove();
                        readRequest(key);
                    }
                    for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
                        task.run();
                    }
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private void readRequest(SelectionKey key) throws IOException {
            ByteBuffer head = (ByteBuffer) key.attachment();
            SocketChannel connection = (SocketChannel) key.channel();
            if (connection.read(head) < 0) {
                connection.close();
                return;
            }
            byte[] bytes = head.array();
            String received = new String(bytes, 0, head.position(), StandardCharsets.US_ASCII);
            if (!received.endsWith("\r\n\r\n")) {
                return;
            }
            head.clear();
            double read = now();
            int number = Integer.parseInt(received.split(" ", 3)[1].substring(1));
            pool.execute(() -> {
                String body = job(number, read);
                execute(() -> write(connection, body));
            });
        }
    }

    public static void main(String[] args) throws IOException {
        pool = Executors.newFixedThreadPool(Integer.parseInt(args[0]));
        Loop[] loops = new Loop[LOOPS];
        for (int at = 0; at < LOOPS; at++) {
            loops[at] = new Loop();
            Thread thread = new Thread(loops[at], "loop-" + at);
            thread.setDaemon(true);
            thread.start();
        }
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
        int port = ((InetSocketAddress) listener.getLocalAddress()).getPort();
        String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
        Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
        for (int next = 0; ; next++) {
            loops[next % LOOPS].add(listener.accept());
        }
    }

    private static void write(SocketChannel connection, String body) {
        String text = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
        try {
            connection.write(ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII)));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    private static String job(int number, double read) {
        double begun = now();
        // The number is 1000 * C + R, for round R of client C.
        if (number / 1000 % 4 == 3) {
            makeThumbnail();
        } else {
            renderReport();
        }
        String format = "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}";
        return String.format(Locale.ROOT, format, read, begun, now());
    }

    private static void makeThumbnail() {
        long sum = 0;
        for (int at = 0; at < 1000; at++) {
            sum += at;
        }
        if (sum < 0) {
            throw new IllegalStateException();
        }
    }

    private static void renderReport() {
        try {
            Thread.sleep(60);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
