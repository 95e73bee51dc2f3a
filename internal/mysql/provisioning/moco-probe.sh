#!/bin/sh
# Asks the server how it is, for the kubelet: "alive" whether it answers, since a hung server keeps its port open, and "ready"
# whether it is also no replica whose replication has stopped. It comes in where clients cannot crowd it out. It uses TLS if the server
# has a certificate, because require_secure_transport refuses every other session over TCP, and verifies nothing inside the Pod. exec lets
# the kubelet's timeout end the program itself.
# A copy of another server gets that one's accounts, and changes of them. One into which Torpor cannot log in any more is not alive: at its
# next start it makes its accounts anew.
set -u
ask() {
  account=$1 tls=$2
  shift 2
  "$@" ${MOCO_MYSQL:-mysql} --defaults-file="${MOCO_CREDENTIALS:-/mysql-credentials}/$account-my.cnf" --protocol=tcp \
    --host="$MOCO_POD_IP" --port=33062 --connect-timeout=9 --ssl-mode="$tls" --get-server-public-key -Nse "$question"
}
question="DO 1"
# Settings for clients end a long query, and refuse a join of many rows.
[ "$1" = ready ] && question="SET max_execution_time = 0, sql_big_selects = ON; SELECT UUID_TO_BIN(IF(COUNT(*) = 0, UUID(), 'a replication thread is stopped')) IS NULL
  FROM performance_schema.replication_connection_status c JOIN performance_schema.replication_applier_status a USING (channel_name)
  WHERE c.channel_name = '' AND (c.service_state = 'OFF' OR a.service_state = 'OFF')"
[ "$1" = ready ] || [ -z "${MOCO_ACCOUNTS:-}" ] || ask moco-admin REQUIRED command || exit
ask moco-agent PREFERRED exec
