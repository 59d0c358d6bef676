import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A server with a thread for each connection, in four functions by the client's number: it
 * computes, sleeps, waits for a lock, calls another service. Each answer says which function the
 * thread was in, and from when until when.
 *
 * <p>usage: NamesServer PEER
 */
public final class NamesServer {
  /** What each takes, in nanoseconds. */
  private static final long LONG = 20_000_000;

  /** Calls before the first request: the compilers are asked for fewer. */
  private static final int WARM_UP = 200;

  private static final Object LOCK = new Object();
  private static final byte[] HEAD_END = "\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

  private static String peerHost;
  private static int peerPort;
  private static volatile long sink;

  /** The client is a thousandth of its request's number. */
  private static final int REQUESTS_PER_CLIENT = 1000;

  /** From when until when a thread was in a function, by that function itself. */
  private static final class Stay {
    long begun;
    long ended;
  }

  private static final String[] FUNCTIONS = {"computing", "sleeping", "locking", "calling"};

  public static void main(String[] args) throws Exception {
    int colon = args[0].lastIndexOf(':');
    peerHost = args[0].substring(0, colon);
    peerPort = Integer.parseInt(args[0].substring(colon + 1));
    // Real ones, so that what is compiled has each way through it.
    for (int i = 0; i < WARM_UP; i++) {
      Stay stay = new Stay();
      sink = body("0", FUNCTIONS[0], i, stay).length();
      for (int way = 0; way < FUNCTIONS.length; way++) {
        work(way, 100_000, stay);
      }
    }
    ServerSocket listener = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + listener.getLocalPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
    while (true) {
      Socket client = listener.accept();
      new Thread(() -> converse(client)).start();
    }
  }

  private static void converse(Socket client) {
    try (client) {
      client.setTcpNoDelay(true);
      String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
      String path;
      while ((path = readPath(client.getInputStream())) != null) {
        long read = System.nanoTime();
        int number = Integer.parseInt(path.substring(1));
        int way = number / REQUESTS_PER_CLIENT % FUNCTIONS.length;
        Stay stay = new Stay();
        work(way, LONG, stay);
        answer(client, body(tid, FUNCTIONS[way], read, stay));
      }
    } catch (Exception gone) {
      // The client.
    }
  }

  private static void work(int way, long nanoseconds, Stay stay) throws Exception {
    switch (way) {
      case 0:
        computing(nanoseconds, stay);
        break;
      case 1:
        sleeping(nanoseconds, stay);
        break;
      case 2:
        locking(nanoseconds, stay);
        break;
      default:
        calling(nanoseconds, stay);
    }
  }

  private static void computing(long nanoseconds, Stay stay) {
    stay.begun = System.nanoTime();
    long end = stay.begun + nanoseconds;
    long mixed = sink;
    while (System.nanoTime() < end) {
      for (int i = 0; i < 10_000; i++) {
        mixed = mixed * 31 + i;
      }
    }
    sink = mixed;
    stay.ended = System.nanoTime();
  }

  private static void sleeping(long nanoseconds, Stay stay) throws InterruptedException {
    stay.begun = System.nanoTime();
    Thread.sleep(nanoseconds / 1_000_000, (int) (nanoseconds % 1_000_000));
    stay.ended = System.nanoTime();
  }

  private static void locking(long nanoseconds, Stay stay) throws InterruptedException {
    stay.begun = System.nanoTime();
    synchronized (LOCK) {
      LOCK.wait(nanoseconds / 4_000_000, 1);
      Thread.sleep(nanoseconds / 2_000_000, 1);
    }
    stay.ended = System.nanoTime();
  }

  private static void calling(long nanoseconds, Stay stay) throws IOException {
    stay.begun = System.nanoTime();
    try (Socket peer = new Socket(peerHost, peerPort)) {
      String ask =
          "GET /ms=" + nanoseconds / 1_000_000 + " HTTP/1.1\r\nConnection: close\r\n\r\n";
      peer.getOutputStream().write(ask.getBytes(StandardCharsets.US_ASCII));
      InputStream answer = peer.getInputStream();
      for (int last = 0; last != 0x0d0a0d0a; ) {
        int next = answer.read();
        if (next < 0) {
          throw new IOException("no answer");
        }
        last = last << 8 | next;
      }
    }
    stay.ended = System.nanoTime();
  }

  /** The second word of a head; null at the end. */
  private static String readPath(InputStream from) throws IOException {
    StringBuilder head = new StringBuilder();
    int matched = 0;
    while (matched < HEAD_END.length) {
      int next = from.read();
      if (next < 0) {
        return null;
      }
      matched = next == HEAD_END[matched] ? matched + 1 : next == HEAD_END[0] ? 1 : 0;
      head.append((char) next);
    }
    return head.toString().split(" ")[1];
  }

  private static String body(String tid, String function, long read, Stay stay) {
    return "{\"read\": " + read / 1e6 + ", \"begun\": " + stay.begun / 1e6 + ", \"ended\": "
        + stay.ended / 1e6 + ", \"ran\": [[" + tid + ", \"NamesServer." + function + "\", "
        + stay.begun + ", " + stay.ended + "]]}";
  }

  private static void answer(Socket client, String body) throws IOException {
    String answer =
        "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
    client.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
  }
}
