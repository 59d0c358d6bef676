#!/bin/sh
# Builds a server, and the cluster that its database serves.
# usage: build.sh FOLDER go|java|tokio
set -eu
out=$1
../controls/postgres-build.sh "$out"
case $2 in
  go)
    cd go-server
    go build -o "$out/server" .
    ;;
  java)
    [ -e "$out/jars/done" ] ||
      mvn --batch-mode --quiet --file java/pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$out/jars"
    touch "$out/jars/done"
    javac --release 17 -cp "$out/jars/*" -d "$out" java/DatabaseServer.java
    ;;
  tokio)
    cargo build --quiet --release --locked --manifest-path ../Cargo.toml --target-dir ../target \
      --package database
    ln -sf ../../../release/database "$out/server"
    ;;
esac
