#!/bin/sh
# nginx takes port and paths from its configuration alone: write one into the lab's folder, and
# become nginx. usage: nginx-static.sh FOLDER PORT PIDFILE [tls] tls: over TLS, and a connection
# that is idle for 1.5 s is closed
set -eu
tmp=$1 port=$2 pidfile=$3 tls=${4:-}

mkdir "$tmp/www"
echo 'hello' >"$tmp/www/index.html"
listen="listen 127.0.0.1:$port;"
if [ -n "$tls" ]; then
  "$(dirname "$0")/certificate.sh" "$tmp"
  listen="listen 127.0.0.1:$port ssl; ssl_certificate $tmp/certificate.pem;
    ssl_certificate_key $tmp/key.pem; keepalive_timeout 1500ms;"
fi
cat >"$tmp/nginx.conf" <<EOF
daemon off;
worker_processes 2;
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
  server { $listen root $tmp/www; }
}
EOF
# Debian keeps it where only root's PATH looks.
PATH=$PATH:/usr/sbin exec nginx -e stderr -p "$tmp" -c "$tmp/nginx.conf"
