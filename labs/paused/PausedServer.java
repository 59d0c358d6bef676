import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/**
 * A server whose virtual machine stops all of its threads now and then. {@code scorer}: a job is in
 * a counted loop, which the compiler gives no safepoint, and each collection waits for its end.
 * {@code janitor}: a job asks for collections of all that lives.
 */
public final class PausedServer {
  private static final int[] TABLE = new int[1 << 10];
  private static volatile int sink;
  private static volatile Object kept;

  /** An element of a large live heap. */
  private static final class Entry {
    Entry next;
    final byte[] value = new byte[16];
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("scorer")) {
      // Compiled before it is asked for.
      for (int i = 0; i < 20_000; i++) {
        sink = scoreAll(1000);
      }
      background("scorer", PausedServer::scoreForever);
    } else {
      kept = entries(6_000_000);
      background("janitor", PausedServer::cleanForever);
    }
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext(
        "/",
        exchange -> {
          renderPage();
          exchange.sendResponseHeaders(200, 4);
          exchange.getResponseBody().write("page".getBytes());
          exchange.close();
        });
    server.start();
    String ready =
        ProcessHandle.current().pid() + " 127.0.0.1:" + server.getAddress().getPort() + "\n";
    Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
  }

  private static void background(String name, Runnable job) {
    Thread thread = new Thread(job, name);
    thread.setDaemon(true);
    thread.start();
  }

  private static void scoreForever() {
    while (true) {
      sink = scoreAll(120_000_000);
      pause(200);
    }
  }

  /** Without a call in it: the thread cannot be stopped before its end. */
  private static int scoreAll(int count) {
    int score = 0;
    for (int i = 0; i < count; i++) {
      score = score * 31 + TABLE[(score ^ i) & 1023];
    }
    return score;
  }

  private static void cleanForever() {
    while (true) {
      pause(500);
      System.gc();
    }
  }

  private static Entry entries(int count) {
    Entry first = null;
    for (int i = 0; i < count; i++) {
      Entry entry = new Entry();
      entry.next = first;
      first = entry;
    }
    return first;
  }

  private static void renderPage() {
    byte[][] pieces = new byte[40][];
    for (int i = 0; i < pieces.length; i++) {
      pieces[i] = new byte[10_000];
    }
    sink = pieces.length;
  }

  private static void pause(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException ended) {
      throw new IllegalStateException(ended);
    }
  }
}
