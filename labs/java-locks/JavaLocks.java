import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A ledger on the JDK's HTTP server, with a thread for each of its clients. Every booking asks a
 * bank, which takes 50 ms.
 *
 * <p>{@code JavaLocks monitor|reentrant|semaphore|permits|fixed|native LIBRARY|virtual}
 *
 * <p>The first three ask while they hold the lock that they are named for: one booking at a time.
 * {@code permits} has a semaphore with three permits: three at a time. {@code fixed} asks first,
 * and holds the lock for moments. {@code native} has virtual threads and no lock, and asks through
 * a native library, which pins a virtual thread to its carrier; {@code virtual} is that without it.
 */
public final class JavaLocks {
  private static final int THREADS = 8;
  private static final long BANK_MS = 50;

  /** Asks the bank, and enters the booking into the ledger. */
  private interface Booking {
    void book() throws InterruptedException;
  }

  private static final Object MONITOR = new Object();
  private static final ReentrantLock LOCK = new ReentrantLock();
  private static final Semaphore PERMIT = new Semaphore(1);
  private static final Semaphore PERMITS = new Semaphore(3, true);

  private static final Series LOCK_WAIT = new Series();
  private static final Series HELD = new Series();
  private static final Series QUEUED = new Series();
  private static final Series BOOKING = new Series();

  private static final AtomicLong BALANCE = new AtomicLong();

  public static void main(String[] args) throws Exception {
    boolean virtual = args[0].equals("native") || args[0].equals("virtual");
    if (args[0].equals("native")) {
      System.load(args[1]);
    }
    Booking booking =
        switch (args[0]) {
          case "monitor" -> JavaLocks::bookInMonitor;
          case "reentrant" -> JavaLocks::bookUnderLock;
          case "semaphore" -> () -> bookWithPermit(PERMIT);
          case "permits" -> () -> bookWithPermit(PERMITS);
          case "fixed" -> JavaLocks::bookAfterwards;
          case "native" -> JavaLocks::bookThroughLibrary;
          case "virtual" -> JavaLocks::askBank;
          default -> throw new IllegalArgumentException(args[0]);
        };
    var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    HttpServer server = HttpServer.create(address, 1024);
    server.createContext("/book", exchange -> answer(exchange, booking));
    server.createContext("/about", JavaLocks::about);
    server.setExecutor(timed(virtual ? virtualThreads() : Executors.newFixedThreadPool(THREADS)));
    server.start();
    long pid = ProcessHandle.current().pid();
    String ready = pid + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }

  /** By its name: there are none in the JDK that the labs are compiled for. */
  private static ExecutorService virtualThreads() throws ReflectiveOperationException {
    Method made = Executors.class.getMethod("newVirtualThreadPerTaskExecutor");
    return (ExecutorService) made.invoke(null);
  }

  /** Measures how long a task that could run does not. */
  private static Executor timed(ExecutorService executor) {
    return task -> {
      long submitted = System.nanoTime();
      executor.execute(
          () -> {
            QUEUED.add(System.nanoTime() - submitted);
            task.run();
          });
    };
  }

  private static void bookInMonitor() throws InterruptedException {
    long wanted = System.nanoTime();
    synchronized (MONITOR) {
      long entered = System.nanoTime();
      LOCK_WAIT.add(entered - wanted);
      askBank();
      BALANCE.incrementAndGet();
      HELD.add(System.nanoTime() - entered);
    }
  }

  private static void bookUnderLock() throws InterruptedException {
    long wanted = System.nanoTime();
    LOCK.lock();
    try {
      long entered = System.nanoTime();
      LOCK_WAIT.add(entered - wanted);
      askBank();
      BALANCE.incrementAndGet();
      HELD.add(System.nanoTime() - entered);
    } finally {
      LOCK.unlock();
    }
  }

  private static void bookWithPermit(Semaphore permits) throws InterruptedException {
    long wanted = System.nanoTime();
    permits.acquire();
    try {
      long entered = System.nanoTime();
      LOCK_WAIT.add(entered - wanted);
      askBank();
      BALANCE.incrementAndGet();
      HELD.add(System.nanoTime() - entered);
    } finally {
      permits.release();
    }
  }

  private static void bookAfterwards() throws InterruptedException {
    askBank();
    long wanted = System.nanoTime();
    synchronized (MONITOR) {
      long entered = System.nanoTime();
      LOCK_WAIT.add(entered - wanted);
      BALANCE.incrementAndGet();
      HELD.add(System.nanoTime() - entered);
    }
  }

  /** The library calls back, and whoever waits with its frame on the stack keeps the carrier. */
  private static void bookThroughLibrary() {
    callBack(JavaLocks::askBank);
  }

  private static native void callBack(Booking booking);

  /** A call of something synchronous. */
  private static void askBank() throws InterruptedException {
    Thread.sleep(BANK_MS);
  }

  private static void answer(HttpExchange exchange, Booking booking) throws IOException {
    long begun = System.nanoTime();
    try {
      booking.book();
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
    BOOKING.add(System.nanoTime() - begun);
    reply(exchange, "booked");
  }

  private static void about(HttpExchange exchange) throws IOException {
    String form = "{\"lock_wait\":%s,\"held\":%s,\"queued\":%s,\"booking\":%s}";
    reply(exchange, String.format(form, LOCK_WAIT, HELD, QUEUED, BOOKING));
  }

  private static void reply(HttpExchange exchange, String text) throws IOException {
    byte[] body = text.getBytes(StandardCharsets.US_ASCII);
    exchange.sendResponseHeaders(200, body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }

  /** Durations; as JSON their number, median, 99th percentile, maximum and sum. */
  private static final class Series {
    private final List<Long> durations = Collections.synchronizedList(new ArrayList<>());

    void add(long ns) {
      durations.add(ns);
    }

    @Override
    public String toString() {
      List<Long> sorted = new ArrayList<>(durations);
      Collections.sort(sorted);
      int count = sorted.size();
      if (count == 0) {
        return "{\"count\":0}";
      }
      double sum = sorted.stream().mapToLong(Long::longValue).sum() / 1e6;
      // Nearest ranks, as the clients have them.
      double p50 = sorted.get((count * 50 + 99) / 100 - 1) / 1e6;
      double p99 = sorted.get((count * 99 + 99) / 100 - 1) / 1e6;
      double max = sorted.get(count - 1) / 1e6;
      return String.format(
          Locale.ROOT,
          "{\"count\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"sum_ms\":%.3f}",
          count, p50, p99, max, sum);
    }
  }
}
