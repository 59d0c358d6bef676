#!/bin/sh
# HAProxy with a frontend that passes everything on to another one of its own, on a unix socket,
# which answers. usage: haproxy.sh FOLDER PORT PIDFILE
set -eu
tmp=$1 port=$2 pidfile=$3

cat >"$tmp/haproxy.cfg" <<CFG
global
  nbthread 2
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend first
  bind 127.0.0.1:$port
  default_backend second
backend second
  server own unix@$tmp/second
frontend answers
  bind unix@$tmp/second
  http-request return status 200 content-type text/plain string hello
CFG
# In the foreground it writes no file with its pid.
echo $$ >"$pidfile"
# Debian keeps it where only root's PATH looks.
PATH=$PATH:/usr/sbin exec haproxy -db -f "$tmp/haproxy.cfg"
