#!/bin/sh
# PostgreSQL on a copy of the cluster that was built.
# usage: postgres.sh BUILT_CLUSTER FOLDER PORT PIDFILE
set -eu
cluster=$1 folder=$2 port=$3 pidfile=$4
. "$(dirname "$0")/postgres-common.sh"

cp -a "$cluster" "$folder/data"
# Its own start and checkpoints are none of the load.
exec $not_root "$bin/postgres" -D "$folder/data" -p "$port" -c listen_addresses=127.0.0.1 \
  -c unix_socket_directories= \
  -c external_pid_file="$pidfile" -c max_wal_size=2GB -c autovacuum=off -c log_min_messages=warning
