#!/bin/sh
# Runs fio on io_uring for a few seconds, and leaves what it measured as the ground truth.
# usage: fio.sh FOLDER FILE [fio's options]
set -eu
tmp=$1 file=$2
shift 2

echo "$$ $tmp" >"$READY_FILE"
fio --name=lab --filename="$file" --size=64m --rw=randread --bs=4k --ioengine=io_uring \
  --thread --time_based --runtime=3 \
  --output-format=terse --terse-version=3 --output="$tmp/fio" "$@"
# Fields of the terse format, version 3: operations a second, and the mean completion latency in
# microseconds.
awk -F ';' 'NF > 50 {
  printf "{\"ops_per_s\":%d,\"latency_us\":%.3f,\"error\":%d}\n", $8, $16, $5; found = 1
} END { exit !found }' "$tmp/fio" >"$tmp/truth.part"
rm -f "$file"
mv "$tmp/truth.part" "$tmp/truth.json"
exec sleep 600
