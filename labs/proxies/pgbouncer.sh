#!/bin/sh
# PgBouncer before PostgreSQL, with so many connections to it.
# usage: pgbouncer.sh FOLDER PORT PIDFILE SERVER POOL
set -eu
tmp=$1 port=$2 pidfile=$3 server=$4 pool=$5
. "$(dirname "$0")/../controls/postgres-common.sh"

cat >"$tmp/pgbouncer.ini" <<EOF
[databases]
postgres = host=${server%:*} port=${server##*:} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = $pool
log_connections = 0
log_disconnections = 0
stats_period = 3600
EOF
# Debian keeps it where only root's PATH looks. It refuses to run as root.
PATH=$PATH:/usr/sbin
$not_root pgbouncer -q "$tmp/pgbouncer.ini" &
# By SIGTERM it ends in failure.
trap 'kill -INT $!' TERM
# By itself it writes no newline after its pid.
echo $$ >"$pidfile"
wait $! || true
wait $!
