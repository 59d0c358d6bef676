#!/bin/sh
# ElasticMQ: queue.sh JARS. Says PID ADDRESS in the file that READY_FILE names.
set -eu
port=$(python3 -I -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
java -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dnode-address.host=127.0.0.1 -Dnode-address.port="$port" -Drest-sqs.bind-port="$port" \
    -Drest-sqs.bind-hostname=127.0.0.1 -Drest-stats.enabled=false \
    -cp "$1/*" org.elasticmq.server.Main >/dev/null &
until python3 -I -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do
    sleep 0.05
done
echo "$! 127.0.0.1:$port" >"$READY_FILE"
wait
