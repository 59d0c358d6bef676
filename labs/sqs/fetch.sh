#!/bin/sh
# Fetches ElasticMQ and boto3, once: fetch.sh FOLDER.
set -eu
if [ ! -e "$1/jars/done" ]; then
    mvn --batch-mode --quiet --file java/pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$1/jars"
    touch "$1/jars/done"
fi
[ ! -e "$1/venv/done" ] || exit 0
python3 -m venv --clear "$1/venv"
"$1/venv/bin/pip" install --quiet boto3==1.44.8
touch "$1/venv/done"
