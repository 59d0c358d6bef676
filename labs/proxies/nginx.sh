#!/bin/sh
# nginx before one server. usage: nginx.sh FOLDER PORT PIDFILE SERVER [PROCESSES]
set -eu
tmp=$1 port=$2 pidfile=$3 server=$4 processes=${5:-2}

cat >"$tmp/nginx.conf" <<EOF
daemon off;
worker_processes $processes;
pid $pidfile;
error_log stderr warn;
# As root, the workers stay root: they could not read the lab's private folder otherwise.
$([ "$(id -u)" -ne 0 ] || echo 'user root;')
events { worker_connections 256; }
http {
  access_log off;
  # All its scratch folders, or it would use the system's.
  client_body_temp_path $tmp/body;
  proxy_temp_path $tmp/proxy;
  fastcgi_temp_path $tmp/fastcgi;
  uwsgi_temp_path $tmp/uwsgi;
  scgi_temp_path $tmp/scgi;
  keepalive_requests 1000000;
  upstream service { server $server; keepalive 16; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:$port;
    location / {
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
EOF
# Debian keeps it where only root's PATH looks.
PATH=$PATH:/usr/sbin exec nginx -e stderr -p "$tmp" -c "$tmp/nginx.conf"
