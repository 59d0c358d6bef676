#!/bin/sh
# redis on a port of its own: redis.sh FOLDER. Says PID ADDRESS in the file that READY_FILE names.
set -eu
port=$(python3 -I -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
redis-server --bind 127.0.0.1 --port "$port" --dir "$1" --save "" --appendonly no \
    --loglevel warning &
until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.02; done
echo "$! 127.0.0.1:$port" >"$READY_FILE"
wait
