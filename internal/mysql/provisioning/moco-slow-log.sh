#!/bin/sh
# Prints the slow log, also after it was rotated, as the output of its container. It never fails, because a container that is not
# ready would take the Pod from the clients. Only sh, sleep and tail are needed. Without tail it prints nothing.
set -u
log=${MOCO_LOGS:-/var/log/mysql}/mysql.slow
child=
end() {
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
  exit 0
}
trap end TERM INT
# tail ignores SIGTERM as the first process of a container, so it is a child.
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
