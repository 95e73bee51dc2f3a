#!/bin/sh
# Runs the MySQL server, and again when it ends with 16: that is how it asks for it after a CLONE, which it does only
# under a parent that MYSQLD_PARENT_PID names. Arguments are further options of mysqld. Only sh and mysqld are needed.
set -u
config=${MOCO_CONFIG:-/etc/mysql/my.cnf}
server_id=$((MOCO_SERVER_ID_BASE + ${MOCO_POD_NAME##*-}))
MYSQLD_PARENT_PID=$$
export MYSQLD_PARENT_PID

child=
ending=
end() {
  ending=yes
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap end TERM INT

while [ -z "$ending" ]; do
  ${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --server-id="$server_id" --admin-address="$MOCO_POD_IP" \
    --report-host="$MOCO_POD_NAME.$MOCO_SUBDOMAIN" "$@" &
  child=$!
  # A signal may have come before there was anybody to tell.
  [ -z "$ending" ] || kill -TERM "$child"
  # A signal interrupts wait; the server may need a while to end.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  [ "$code" -eq 16 ] || exit "$code"
  child=
  echo "moco-mysqld: the server asks to be started again"
done
