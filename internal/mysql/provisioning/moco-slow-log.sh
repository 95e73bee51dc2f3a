#!/bin/sh
# Prints the slow log as the output of its container, and continues after each rotation of the log. The script never fails, because a Pod
# with a container that is not ready gets no clients. The image needs only sh, sleep and tail. Without tail, the script prints a message.
set -u
log=${MOCO_LOGS:-/var/log/mysql}/mysql.slow
child=
end() {
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
  exit 0
}
trap end TERM INT
# The first process of a container ignores SIGTERM unless it has a handler. So tail runs as a child of this shell.
if command -v tail >/dev/null; then
  first=+1
  while :; do
    tail -q -n "$first" -F "$log" 2>/dev/null &
    child=$!
    wait "$child"
    first=0
    sleep 1 &
    child=$!
    wait "$child"
  done
fi
echo "moco-slow-log: expected the program tail in the image, found none; read $log in the mysqld container"
while :; do
  sleep 3600 &
  child=$!
  wait "$child"
done
