#!/bin/sh
# Makes a certificate for localhost: certificate.pem and key.pem in FOLDER.
# usage: certificate.sh FOLDER
exec openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 \
  -keyout "$1/key.pem" -out "$1/certificate.pem" \
  </dev/null 2>/dev/null
