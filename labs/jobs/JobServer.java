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
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A selector that reads requests and writes answers, and hands each request's job to a pool.
 *
 * <p>JobServer pool|ordered|threads THREADS
 *
 * <p>Of four clients three ask for a report, which takes 60 ms of sleep; the fourth one asks for a
 * thumbnail. With `ordered` the jobs are done in the order in which they came, one after another,
 * each on whichever of the pool's threads is free. With `threads` there is no selector: a thread
 * for each client reads its requests, hands the jobs to the pool and waits for them.
 */
final class JobServer {
    private record Answer(SelectionKey key, String body) {}

    /** One job after another, on an executor's threads. */
    private static final class Ordered implements Executor {
        private final Executor pool;
        private final Queue<Runnable> jobs = new ArrayDeque<>();
        private boolean busy;

        Ordered(Executor pool) {
            this.pool = pool;
        }

        @Override
        public synchronized void execute(Runnable job) {
            jobs.add(job);
            if (!busy) {
                busy = true;
                pool.execute(this::runNext);
            }
        }

        private synchronized Runnable next() {
            return jobs.remove();
        }

        private synchronized void goOn() {
            busy = !jobs.isEmpty();
            if (busy) {
                pool.execute(this::runNext);
            }
        }

        private void runNext() {
            next().run();
            goOn();
        }
    }

    private static final Queue<Answer> ANSWERS = new ConcurrentLinkedQueue<>();
    private static Selector selector;
    private static Executor executor;

    private JobServer() {}

    public static void main(String[] args) throws IOException {
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(args[1]));
        executor = args[0].equals("ordered") ? new Ordered(pool) : pool;
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
        if (args[0].equals("threads")) {
            tellWhere(listener);
            while (true) {
                SocketChannel connection = listener.accept();
                Thread thread = new Thread(() -> converse(connection, pool));
                thread.setDaemon(true);
                thread.start();
            }
        }
        selector = Selector.open();
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        tellWhere(listener);
        while (true) {
            selector.select();
            Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
            while (keys.hasNext()) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel connection = listener.accept();
                    connection.configureBlocking(false);
                    connection.socket().setTcpNoDelay(true);
                    connection.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(4096));
                } else {
                    readRequest(key);
                }
            }
            writeAnswers();
        }
    }

    private static void tellWhere(ServerSocketChannel listener) throws IOException {
        int port = ((InetSocketAddress) listener.getLocalAddress()).getPort();
        String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
        Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    }

    private static void converse(SocketChannel connection, ExecutorService pool) {
        try {
            connection.socket().setTcpNoDelay(true);
            ByteBuffer head = ByteBuffer.allocate(4096);
            while (connection.read(head) >= 0) {
                String received =
                        new String(head.array(), 0, head.position(), StandardCharsets.US_ASCII);
                if (received.endsWith("\r\n\r\n")) {
                    head.clear();
                    double read = now();
                    int number = Integer.parseInt(received.split(" ", 3)[1].substring(1));
                    connection.write(answer(pool.submit(() -> job(number, read)).get()));
                }
            }
        } catch (IOException | InterruptedException | ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }

    private static ByteBuffer answer(String body) {
        String text =
                "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII));
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    private static void readRequest(SelectionKey key) throws IOException {
        ByteBuffer head = (ByteBuffer) key.attachment();
        if (((SocketChannel) key.channel()).read(head) < 0) {
            key.channel().close();
            return;
        }
        String received = new String(head.array(), 0, head.position(), StandardCharsets.US_ASCII);
        if (!received.endsWith("\r\n\r\n")) {
            return;
        }
        head.clear();
        double read = now();
        int number = Integer.parseInt(received.split(" ", 3)[1].substring(1));
        executor.execute(() -> doJob(key, number, read));
    }

    private static void writeAnswers() throws IOException {
        for (Answer answer = ANSWERS.poll(); answer != null; answer = ANSWERS.poll()) {
            ((SocketChannel) answer.key().channel()).write(answer(answer.body()));
        }
    }

    private static void doJob(SelectionKey key, int number, double read) {
        ANSWERS.add(new Answer(key, job(number, read)));
        selector.wakeup();
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
