import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * As consumer.py, in Java: one thread polls the broker and works on what it gets.
 *
 *     Consumer ADDRESS DONE [locked]
 */
public final class Consumer {
    static final Object STOCK = new Object();

    /** Another thread has the lock for 120 ms, each 130 ms, unless it copies what it counts. */
    static void countStock(boolean locked) {
        while (true) {
            if (locked) {
                synchronized (STOCK) {
                    sleep(120);
                }
            } else {
                synchronized (STOCK) {
                    STOCK.hashCode();
                }
            }
            sleep(10);
        }
    }

    static void reserve() {
        synchronized (STOCK) {
            sleep(2);
        }
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static String nowMs() {
        return Double.toString(System.nanoTime() / 1e6);
    }

    public static void main(String[] args) throws Exception {
        boolean locked = args.length > 2;
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "group.id", "stock",
            "auto.offset.reset", "earliest", "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class);
        Thread counter = new Thread(() -> countStock(locked), "counter");
        counter.setDaemon(true);
        counter.start();
        try (var consumer = new KafkaConsumer<String, String>(settings);
                PrintStream done = new PrintStream(args[1])) {
            consumer.subscribe(List.of("jobs"));
            boolean ready = false;
            while (true) {
                var records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    String taken = nowMs();
                    reserve();
                    done.println(record.value() + " " + taken + " " + nowMs());
                }
                if (!ready && !consumer.assignment().isEmpty()) {
                    ready = true;
                    Files.writeString(Path.of(System.getenv("READY_FILE")),
                        ProcessHandle.current().pid() + " " + args[0] + "\n");
                }
            }
        }
    }
}
