#!/bin/sh
# Runs the MySQL server, and again when it ends with 16: that is how it asks for it after a CLONE, which it does only
# under a parent that MYSQLD_PARENT_PID names. Meanwhile it keeps the slow and the general log at two files each of MOCO_LOG_SIZE bytes
# and what ten seconds add; the error log is the container's. Each time the server first runs the statements of the file MOCO_ACCOUNTS: a copy
# of another server has that one's accounts. Without it, the server runs moco-accounts.sql, which lets accounts log in whose passwords have
# expired. Arguments are further options of mysqld. Only sh, mysqld, mysql, mv, rm, sleep and wc are needed.
set -u
config=${MOCO_CONFIG:-/etc/mysql/my.cnf}
server_id=$((MOCO_SERVER_ID_BASE + ${MOCO_POD_NAME##*-}))
MYSQLD_PARENT_PID=$$
export MYSQLD_PARENT_PID

flush_logs() {
  ${MOCO_MYSQL:-mysql} --defaults-file="${MOCO_CREDENTIALS:-/mysql-credentials}/moco-agent-my.cnf" --protocol=tcp --host="$MOCO_POD_IP" \
    --port=33062 --connect-timeout=9 --ssl-mode=PREFERRED --get-server-public-key -e "FLUSH LOCAL SLOW LOGS, GENERAL LOGS"
}

rotate_logs() {
  flushed=yes
  while sleep "${MOCO_LOG_INTERVAL:-10}" >/dev/null; do
    for log in "${MOCO_LOGS:-/var/log/mysql}"/mysql.slow "${MOCO_LOGS:-/var/log/mysql}"/mysql.general; do
      [ -f "$log" ] && [ "$(wc -c <"$log")" -ge "$MOCO_LOG_SIZE" ] && mv "$log" "$log.0" && flushed=
    done
    # The server writes to the file that was moved until it is told.
    [ -n "$flushed" ] || flush_logs && flushed=yes
  done
}

child=
code=0
ending=
end() {
  ending=yes
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap end TERM INT
# A server that was killed leaves the locks of its sockets in a volume that outlives the container. Each has the server's process number,
# and a server does not start while any process of the new container has that number.
rm -f "${MOCO_RUN:-/run}"/*.sock.lock
rotate_logs &
rotation=$!

while [ -z "$ending" ]; do
  ${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --server-id="$server_id" --admin-address="$MOCO_POD_IP" \
    --report-host="$MOCO_POD_NAME.$MOCO_SUBDOMAIN" --init-file="${MOCO_ACCOUNTS:-${config%/*}/moco-accounts.sql}" "$@" &
  child=$!
  # A signal may have come before there was anybody to tell.
  [ -z "$ending" ] || kill -TERM "$child"
  # A signal interrupts wait; the server may need a while to end.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  [ "$code" -eq 16 ] || break
  child=
  code=0
  echo "moco-mysqld: the server asks to be started again"
done
kill -TERM "$rotation" 2>/dev/null
exit "$code"
