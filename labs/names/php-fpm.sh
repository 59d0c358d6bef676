#!/bin/sh
# php-fpm with twelve workers for server.php, which is what is watched, and nginx before it.
# usage: php-fpm.sh FOLDER PORT PEER SCRIPT [PHP-FPM'S ARGUMENT]…
set -eu
tmp=$1 port=$2 peer=$3 script=$4
shift 4

# As root, the workers stay root: they could not read the lab's private folder otherwise.
user=$([ "$(id -u)" -ne 0 ] || echo root)
cat >"$tmp/nginx.conf" <<END
daemon off;
worker_processes 1;
pid $tmp/nginx.pid;
error_log stderr warn;
${user:+user $user;}
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
  server {
    listen 127.0.0.1:$port;
    location / {
      fastcgi_pass unix:$tmp/workers;
      fastcgi_param SCRIPT_FILENAME $script;
      fastcgi_param REQUEST_METHOD \$request_method;
      fastcgi_param REQUEST_URI \$request_uri;
      fastcgi_param PEER $peer;
      fastcgi_param LOCK $tmp/lock;
    }
  }
}
END
cat >"$tmp/php-fpm.conf" <<END
[global]
error_log = /dev/stderr
log_level = warning
[www]
${user:+user = $user}
listen = $tmp/workers
pm = static
pm.max_children = 12
END
# Debian keeps them where only root's PATH looks, php-fpm with its version behind its name.
PATH=$PATH:/usr/sbin
fpm=${PHP_FPM:-$(command -v php-fpm || ls /usr/sbin/php-fpm* | head -n 1)}
nginx_pid=
"$fpm" -F -R -y "$tmp/php-fpm.conf" "$@" &
fpm_pid=$!
# The lab ends php-fpm.
trap 'kill "$fpm_pid" $nginx_pid' TERM
until [ -S "$tmp/workers" ]; do sleep 0.05; done
nginx -e stderr -p "$tmp" -c "$tmp/nginx.conf" &
nginx_pid=$!
until [ -s "$tmp/nginx.pid" ]; do sleep 0.05; done
echo "$fpm_pid 127.0.0.1:$port" >"$READY_FILE"
wait "$fpm_pid"
kill $nginx_pid
