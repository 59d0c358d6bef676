#!/bin/sh
# Links FOLDER/java to a JVM that has virtual threads: the newest one that is installed, or that in
# a package of Python's. usage: virtual-java.sh FOLDER
set -eu
out=$1

java=
newest=20
for found in "${JAVA_HOME:-/nowhere}" /usr/lib/jvm/*; do
  [ -x "$found/bin/java" ] && [ -e "$found/release" ] || continue
  version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$found/release")
  if [ "${version:-0}" -gt "$newest" ]; then
    newest=$version
    java=$found/bin/java
  fi
done
if [ -z "$java" ]; then
  exec sh "$(dirname "$0")/java.sh" 25.0.2.1 "$out"
fi
ln -sf "$java" "$out/java"
