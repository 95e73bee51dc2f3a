#!/bin/sh
# Runs the MySQL server, and runs it again if it exits with the code 16. After a CLONE, the server requests a restart with this code, if
# MYSQLD_PARENT_PID is the PID of its parent process.
# Every ten seconds, the script checks the sizes of the slow and the general log. If a log has reached MOCO_LOG_SIZE bytes, the script
# renames it, so that at most two files of each log exist. The error log is the output of the container.
# At each start, the server first runs the statements of an init file. In a copy of an external server, MOCO_ACCOUNTS is this file, which
# creates Torpor's accounts. Otherwise it is moco-accounts.sql, which makes accounts with expired passwords valid again.
# The arguments are passed to mysqld. The image needs only sh, mysqld, mysql, mv, rm, sleep and wc.
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
    # Until its logs are flushed, the server writes to the renamed file.
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
# If a server was killed, the lock files of its sockets remain in a volume that outlives the container. A lock file contains the PID of
# the server. If any process of the new container has this PID, a new server does not start.
rm -f "${MOCO_RUN:-/run}"/*.sock.lock
rotate_logs &
rotation=$!

while [ -z "$ending" ]; do
  ${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --server-id="$server_id" --admin-address="$MOCO_POD_IP" \
    --report-host="$MOCO_POD_NAME.$MOCO_SUBDOMAIN" --init-file="${MOCO_ACCOUNTS:-${config%/*}/moco-accounts.sql}" "$@" &
  child=$!
  # The signal may have arrived before the server was started.
  [ -z "$ending" ] || kill -TERM "$child"
  # A signal interrupts wait, although the server may still be stopping. So the loop waits until the process no longer exists.
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
