#!/bin/sh
# Runs a command that asks this DNS server for names, and nobody else does.
# usage: resolver.sh FOLDER SERVER COMMAND…
set -eu
echo "nameserver ${2%:*}" >"$1/resolv.conf"
exec unshare -m sh -c \
  'mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)" && shift 2 && exec "$@"' \
  sh "$@"
