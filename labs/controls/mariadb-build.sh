#!/bin/sh
# Makes a data folder to be copied for each run, and a Python that speaks to it, unless they are
# there already. usage: mariadb-build.sh FOLDER
set -eu
out=$1
PATH=$PATH:/usr/sbin

if [ ! -e "$out/venv/done" ]; then
  python3 -m venv --clear "$out/venv"
  "$out/venv/bin/pip" install --quiet PyMySQL==1.1.1
  touch "$out/venv/done"
fi
[ ! -e "$out/data" ] || exit 0
rm -rf "$out/new"
mkdir "$out/new"
mariadb-install-db --no-defaults --datadir="$out/new" --user="$(id -un)" --skip-test-db \
  --auth-root-authentication-method=normal --innodb-use-native-aio=0 >"$out/log" 2>&1
mariadbd --no-defaults --datadir="$out/new" --user="$(id -un)" --innodb-use-native-aio=0 \
  --bootstrap >>"$out/log" 2>&1 <<'SQL'
CREATE DATABASE lab;
CREATE TABLE lab.hot (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB;
INSERT INTO lab.hot VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0);
SQL
mv "$out/new" "$out/data"
