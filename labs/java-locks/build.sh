#!/bin/sh
# Compiles the server, and with a second argument what virtual threads need: the library, and a JVM
# that has them. usage: build.sh FOLDER [virtual]
set -eu
out=$1
javac --release 17 -d "$out" JavaLocks.java
[ "${2:-}" = virtual ] || exit 0

include=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")/include
cc -O2 -Wall -Wextra -shared -fPIC -I"$include" -I"$include/linux" \
  -o "$out/libcallback.so" callback.c
../kit/virtual-java.sh "$out"
