#!/bin/sh
# MariaDB on a copy of the data folder that was built.
# usage: mariadb.sh BUILT_DATA FOLDER PORT PIDFILE
set -eu
data=$1 folder=$2 port=$3 pidfile=$4
PATH=$PATH:/usr/sbin

cp -a "$data" "$folder/data"
# No sync for each commit: what is waited for is locks.
exec mariadbd --no-defaults --datadir="$folder/data" --user="$(id -un)" --port="$port" \
  --bind-address=127.0.0.1 --socket="$folder/socket" --pid-file="$pidfile" --skip-name-resolve \
  --innodb-use-native-aio=0 --innodb-flush-log-at-trx-commit=2 --log-warnings=0
