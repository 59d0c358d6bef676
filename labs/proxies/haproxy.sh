#!/bin/sh
# HAProxy before one server, with at most so many connections to it. Who finds none waits.
# usage: haproxy.sh FOLDER PORT PIDFILE SERVER MAXCONN
set -eu
tmp=$1 port=$2 pidfile=$3 server=$4 maxconn=$5

cat >"$tmp/haproxy.cfg" <<CFG
global
  nbthread 2
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout queue 60s
frontend clients
  bind 127.0.0.1:$port
  default_backend service
backend service
  server one $server maxconn $maxconn
CFG
# In the foreground it writes no file with its pid.
echo $$ >"$pidfile"
# Debian keeps it where only root's PATH looks.
PATH=$PATH:/usr/sbin exec haproxy -db -f "$tmp/haproxy.cfg"
