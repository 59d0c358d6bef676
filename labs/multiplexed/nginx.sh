#!/bin/sh
# nginx takes port and paths from its configuration alone: write one into the lab's folder, and
# become nginx, with HTTP/2 in clear text. usage: nginx.sh FOLDER PORT PIDFILE
set -eu
tmp=$1 port=$2 pidfile=$3

mkdir "$tmp/www"
head -c 60000 /dev/zero >"$tmp/www/quick"
head -c 500000 /dev/zero >"$tmp/www/slow"
cat >"$tmp/nginx.conf" <<END
daemon off;
worker_processes 2;
pid $pidfile;
error_log stderr crit;
# As root, the workers stay root: they could not read the lab's private folder otherwise.
$([ "$(id -u)" -ne 0 ] || echo 'user root;')
events { worker_connections 256; }
http {
  access_log off;
  sendfile on;
  # All its scratch folders, or it would use the system's.
  client_body_temp_path $tmp/body;
  proxy_temp_path $tmp/proxy;
  fastcgi_temp_path $tmp/fastcgi;
  uwsgi_temp_path $tmp/uwsgi;
  scgi_temp_path $tmp/scgi;
  keepalive_requests 1000000;
  server { listen 127.0.0.1:$port http2; root $tmp/www; }
}
END
# Debian keeps it where only root's PATH looks.
PATH=$PATH:/usr/sbin exec nginx -e stderr -p "$tmp" -c "$tmp/nginx.conf"
