#!/bin/sh
# Runs a load while other programs want every CPU: crowded.sh LOAD [ARG...]
set -eu
crowd=""
for _ in $(seq "$(nproc)"); do
  timeout 120 sh -c 'while :; do :; done' &
  crowd="$crowd $!"
done
# shellcheck disable=SC2086 # a list of numbers
trap 'kill $crowd' EXIT
"$@"
