#!/bin/sh
# A broker of Kafka: broker.sh FOLDER JARS. Says PID ADDRESS in the file that READY_FILE names.
set -eu
export KAFKA_OPTS=
java -XX:TieredStopAtLevel=1 -cp "$2:$2/jars/*" Broker format "$1" >/dev/null
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$2:$2/jars/*" Broker "$1"
