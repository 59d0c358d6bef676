/** Two threads that sleep in functions that are called by others, often enough to be compiled. */
public final class Sleeper {
  private static final int WARM_UP = 300;
  private static final long FOREVER = 100_000_000;
  private static volatile boolean isHeld;

  public static void main(String[] args) throws Exception {
    Thread sleeper = new Thread(Sleeper::run, "sleeper");
    sleeper.start();
    Thread locked = new Thread(() -> lock(sleeper), "locked");
    locked.start();
    sleeper.join();
  }

  private static void run() {
    for (int i = 0; i < WARM_UP; i++) {
      outer(0);
    }
    synchronized (Thread.currentThread()) {
      isHeld = true;
      outer(FOREVER);
    }
  }

  static void outer(long ms) {
    middle(ms);
  }

  static void middle(long ms) {
    try {
      innermost(ms);
    } catch (InterruptedException ended) {
      throw new IllegalStateException(ended);
    }
  }

  static void innermost(long ms) throws InterruptedException {
    // Also when it is compiled this is the only way through it.
    Thread.sleep(ms, 1);
  }

  private static void lock(Thread holder) {
    while (!isHeld) {
      Thread.yield();
    }
    synchronized (holder) {
      throw new IllegalStateException("nobody has it");
    }
  }
}
