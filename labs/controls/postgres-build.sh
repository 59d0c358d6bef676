#!/bin/sh
# Makes a database cluster to be copied for each run, unless it is there already.
# usage: postgres-build.sh FOLDER
set -eu
out=$1
here=$(dirname "$0")
. "$here/postgres-common.sh"

[ ! -e "$out/cluster" ] || exit 0
rm -rf "$out/new"
as_postgres "$bin/initdb" --pgdata="$out/new" --username=postgres --auth=trust --no-sync \
  --locale=C --encoding=UTF8
as_postgres "$bin/pg_ctl" --pgdata="$out/new" --wait --log="$out/log" \
  -o "-c listen_addresses='' -k '$out'" start
trap 'as_postgres "$bin/pg_ctl" --pgdata="$out/new" --mode=immediate stop' EXIT
"$bin/pgbench" --host="$out" --username=postgres --initialize --scale=5 --quiet postgres
"$bin/psql" --host="$out" --username=postgres --quiet \
  --command='CREATE TABLE hot (id int PRIMARY KEY, n bigint)' \
  --command='INSERT INTO hot SELECT id, 0 FROM generate_series(1, 100) id' postgres
trap - EXIT
as_postgres "$bin/pg_ctl" --pgdata="$out/new" --wait --mode=fast stop
mv "$out/new" "$out/cluster"
