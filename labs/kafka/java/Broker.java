import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * One broker of Kafka with a topic `jobs` of one partition: Broker FOLDER. Says PID ADDRESS in the
 * file that READY_FILE names, once the topic is there. Its log's folder is formatted before, by
 * `Broker format FOLDER`, which ends (Kafka's own tool does).
 */
public final class Broker {
    public static void main(String[] args) throws Exception {
        Path config;
        if (args[0].equals("format")) {
            config = configure(Path.of(args[1]));
            kafka.tools.StorageTool.main(new String[] {
                "format", "--ignore-formatted", "-t", "MkU3OEVBNTcwNTJENDM2Qk",
                "-c", config.toString()});
            return;
        }
        config = Path.of(args[0], "server.properties");
        new Thread(() -> kafka.Kafka.main(new String[] {config.toString()})).start();
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(config)) {
            properties.load(reader);
        }
        String address = properties.getProperty("advertised.listeners").split("//")[1];
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic("jobs", Optional.of(1), Optional.empty())))
                .all().get();
        }
        Files.writeString(Path.of(System.getenv("READY_FILE")),
            ProcessHandle.current().pid() + " " + address + "\n");
    }

    static Path configure(Path folder) throws IOException {
        int port = freePort();
        int controller = freePort();
        String text = String.join("\n",
            "process.roles=broker,controller", "node.id=1",
            "controller.quorum.voters=1@127.0.0.1:" + controller,
            "listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller,
            "advertised.listeners=PLAINTEXT://127.0.0.1:" + port,
            "controller.listener.names=CONTROLLER", "log.dirs=" + folder.resolve("log"),
            "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=0", "");
        return Files.writeString(folder.resolve("server.properties"), text);
    }

    static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
