import java.io.IOException;
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
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A server over java.nio whose handler makes a synchronous call of 40 ms on the selector's thread;
 * with {@code --pool} on threads of its own.
 *
 * <p>With four clients and more there is always a next request when it selects: the selector never
 * waits.
 */
public final class LoopServer {
  private static final long LOOKUP_MS = 40;

  private final Selector selector = Selector.open();
  private final ServerSocketChannel listener = ServerSocketChannel.open();
  private final ByteBuffer buffer = ByteBuffer.allocate(4096);
  private final ExecutorService pool;
  private final Queue<SocketChannel> done = new ConcurrentLinkedQueue<>();

  /** When the first request came; what the others count is from then on. */
  private long since;
  private long selects;
  private long waitedNs;

  private LoopServer(ExecutorService pool) throws IOException {
    this.pool = pool;
    listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 1024);
    listener.configureBlocking(false);
    listener.register(selector, SelectionKey.OP_ACCEPT);
  }

  public static void main(String[] args) throws IOException {
    // As many threads as there are clients.
    LoopServer server = new LoopServer(args.length > 0 ? Executors.newFixedThreadPool(8) : null);
    int port = ((InetSocketAddress) server.listener.getLocalAddress()).getPort();
    String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + port + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    server.run();
  }

  private void run() throws IOException {
    while (true) {
      long begun = System.nanoTime();
      selector.select();
      waitedNs += System.nanoTime() - begun;
      selects++;
      for (SocketChannel channel = done.poll(); channel != null; channel = done.poll()) {
        write(channel, "rate");
      }
      for (SelectionKey key : selector.selectedKeys()) {
        if (key.isAcceptable()) {
          accept();
        } else if (key.isReadable()) {
          read(key);
        }
      }
      selector.selectedKeys().clear();
    }
  }

  private void accept() throws IOException {
    for (SocketChannel channel = listener.accept(); channel != null; channel = listener.accept()) {
      channel.configureBlocking(false);
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.register(selector, SelectionKey.OP_READ);
    }
  }

  private void read(SelectionKey key) throws IOException {
    SocketChannel channel = (SocketChannel) key.channel();
    buffer.clear();
    int got = channel.read(buffer);
    if (got < 0) {
      key.cancel();
      channel.close();
    } else if (got > 0) {
      answer(channel, new String(buffer.array(), 0, got, StandardCharsets.US_ASCII).split(" ")[1]);
    }
  }

  private void answer(SocketChannel channel, String path) throws IOException {
    switch (path) {
      case "/about" -> write(channel, about());
      default -> {
        if (since == 0) {
          since = System.nanoTime();
          selects = 0;
          waitedNs = 0;
        }
        if (pool == null) {
          lookUpRate();
          write(channel, "rate");
        } else {
          pool.execute(
              () -> {
                lookUpRate();
                done.add(channel);
                selector.wakeup();
              });
        }
      }
    }
  }

  /** Waits synchronously, as a blocking client library does. */
  private static void lookUpRate() {
    try {
      Thread.sleep(LOOKUP_MS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** It fits into any send buffer. */
  private static void write(SocketChannel channel, String body) throws IOException {
    String text = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
    channel.write(ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII)));
  }

  private String about() {
    return String.format(
        Locale.ROOT,
        "{\"polls\":%d,\"waited_ms\":%.3f,\"waited_share\":%.4f}",
        selects, waitedNs / 1e6, (double) waitedNs / (System.nanoTime() - since));
  }
}
