import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/**
 * A server over java.nio whose selector returns at once, for good, with nothing that anybody
 * handles.
 *
 * <p>{@code SelectorServer [--connect] [--fixed]}
 *
 * <p>A request for /job is answered three seconds later, and until then its key is of no interest:
 * interestOps(0). Before JDK 11 that was the fault: a reset connection went on waking the selector,
 * for no operation, and select() returned 0. Since then a selector takes a channel without interest
 * out of its set, and the same program has no fault.
 *
 * <p>What still does it is {@code --connect}: what a connection is parked with is OP_CONNECT, which
 * means nothing once it is connected. For epoll that is EPOLLOUT, for the key nothing, and select()
 * returns 0. When the peer resets the connection, it returns 1, with a key that is ready for what
 * nobody waits for.
 */
public final class SelectorServer {
  private static final long JOB_NS = 3_000_000_000L;

  private final boolean connect;
  private final boolean fixed;
  private final Selector selector;
  private final ServerSocketChannel listener;
  private final ByteBuffer buffer = ByteBuffer.allocate(4096);

  private long turns;
  private long futile;
  private long firstFutile;
  private long lastFutile;

  private SelectorServer(List<String> flags) throws IOException {
    connect = flags.contains("--connect");
    fixed = flags.contains("--fixed");
    selector = Selector.open();
    listener = ServerSocketChannel.open();
    listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 1024);
    listener.configureBlocking(false);
    listener.register(selector, SelectionKey.OP_ACCEPT);
  }

  public static void main(String[] args) throws IOException {
    SelectorServer server = new SelectorServer(Arrays.asList(args));
    int port = ((InetSocketAddress) server.listener.getLocalAddress()).getPort();
    String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    server.run();
  }

  private void run() throws IOException {
    while (true) {
      long next = finishJobs();
      if (next < 0) {
        selector.select();
      } else {
        selector.select(next);
      }
      turns++;
      boolean progress = false;
      for (SelectionKey key : selector.selectedKeys()) {
        if (key.isAcceptable()) {
          accept();
          progress = true;
        } else if (key.isReadable()) {
          read(key);
          progress = true;
        }
      }
      if (!progress) {
        countFutile();
      }
      selector.selectedKeys().clear();
    }
  }

  /** Counts a return with nothing to do; a timer's are among them, one for each job. */
  private void countFutile() {
    lastFutile = System.nanoTime();
    if (futile++ == 0) {
      firstFutile = lastFutile;
    }
  }

  private void accept() throws IOException {
    for (SocketChannel channel = listener.accept(); channel != null; channel = listener.accept()) {
      channel.configureBlocking(false);
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.register(selector, SelectionKey.OP_READ);
    }
  }

  private void read(SelectionKey key) {
    try {
      buffer.clear();
      int got = ((SocketChannel) key.channel()).read(buffer);
      if (got < 0) {
        close(key);
      } else if (got > 0) {
        String path = new String(buffer.array(), 0, got, StandardCharsets.US_ASCII).split(" ")[1];
        answer(key, path);
      }
    } catch (IOException gone) {
      close(key);
    }
  }

  private void answer(SelectionKey key, String path) throws IOException {
    switch (path) {
      case "/job" -> {
        key.attach(System.nanoTime() + JOB_NS);
        key.interestOps(connect && !fixed ? SelectionKey.OP_CONNECT : 0);
      }
      case "/about" -> write(key, about());
      default -> write(key, "done");
    }
  }

  /** Answers the jobs that are done. Returns how many milliseconds the next one takes, or -1. */
  private long finishJobs() throws IOException {
    long now = System.nanoTime();
    long next = -1;
    for (SelectionKey key : selector.keys()) {
      if (!key.isValid() || !(key.attachment() instanceof Long)) {
        continue;
      }
      long left = (Long) key.attachment() - now;
      if (left <= 0) {
        key.attach(null);
        write(key, "done");
        if (key.isValid()) {
          key.interestOps(SelectionKey.OP_READ);
        }
      } else if (next < 0 || left / 1_000_000 < next) {
        next = left / 1_000_000 + 1;
      }
    }
    return next;
  }

  private void write(SelectionKey key, String body) {
    String text = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
    try {
      // It fits into any send buffer.
      ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII));
        ((SocketChannel) key.channel()).write(bytes);
    } catch (IOException gone) {
      close(key);
    }
  }

  private void close(SelectionKey key) {
    try {
      key.cancel();
      key.channel().close();
    } catch (IOException ignored) {
      // It is gone either way.
    }
  }

  private String about() {
    var system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    var threads = ManagementFactory.getThreadMXBean();
    double spun = (lastFutile - firstFutile) / 1e9;
    return String.format(
        "{\"pid\":%d,\"turns\":%d,\"futile\":%d,\"futile_s\":%.6f,"
                + "\"futile_per_s\":%.1f,\"cpu_s\":%.6f,"
            + "\"loop_cpu_s\":%.6f}",
        ProcessHandle.current().pid(), turns, futile, spun, spun > 0 ? futile / spun : 0.0,
        system.getProcessCpuTime() / 1e9, threads.getCurrentThreadCpuTime() / 1e9);
  }
}
