import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.stub.ServerCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/** A gRPC server whose calls each keep a thread: /lab/quick for 10 ms, /lab/slow for 300 ms. */
class GrpcServer {
    /** Messages as they are. */
    static final MethodDescriptor.Marshaller<byte[]> PLAIN =
            new MethodDescriptor.Marshaller<>() {
                @Override
                public InputStream stream(byte[] value) {
                    return new ByteArrayInputStream(value);
                }

                @Override
                public byte[] parse(InputStream stream) {
                    try {
                        return stream.readAllBytes();
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                }
            };

    static MethodDescriptor<byte[], byte[]> method(String name) {
        return MethodDescriptor.newBuilder(PLAIN, PLAIN)
                .setType(MethodDescriptor.MethodType.UNARY)
                .setFullMethodName("lab/" + name)
                .build();
    }

    static ServerCalls.UnaryMethod<byte[], byte[]> takes(long ms) {
        return (question, answer) -> {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            answer.onNext("answer".getBytes());
            answer.onCompleted();
        };
    }

    public static void main(String[] args) throws Exception {
        ServerServiceDefinition calls =
                ServerServiceDefinition.builder("lab")
                        .addMethod(method("quick"), ServerCalls.asyncUnaryCall(takes(10)))
                        .addMethod(method("slow"), ServerCalls.asyncUnaryCall(takes(300)))
                        .build();
        Server server =
                Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                        .executor(Executors.newFixedThreadPool(Integer.parseInt(args[0])))
                        .addService(calls)
                        .build()
                        .start();
        String ready = ProcessHandle.current().pid() + " 127.0.0.1:" + server.getPort() + "\n";
        Files.writeString(Path.of(System.getenv("READY_FILE")), ready);
        server.awaitTermination();
    }
}
