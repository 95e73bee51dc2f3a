#!/bin/sh
# Probes the server for the kubelet. The probe "alive" succeeds if the server executes a statement. A check of the port would not suffice,
# because a hung server keeps its port open. The probe "ready" also fails if a replication thread of a replica is stopped.
# The script connects to the admin port, which accepts the probe even if clients use all connections. It uses TLS if the server has a
# certificate, because require_secure_transport rejects all other sessions over TCP. It does not verify the certificate, because the
# connection stays inside the Pod. exec replaces the shell by the client, so that the kubelet's timeout ends the client.
# A copy of an external server receives changes that the external server makes to accounts. If Torpor can no longer log in to the copy, the
# probe "alive" fails: the kubelet restarts the server, and the init file of the server creates the accounts again.
set -u
ask() {
  account=$1 tls=$2
  shift 2
  "$@" ${MOCO_MYSQL:-mysql} --defaults-file="${MOCO_CREDENTIALS:-/mysql-credentials}/$account-my.cnf" --protocol=tcp \
    --host="$MOCO_POD_IP" --port=33062 --connect-timeout=9 --ssl-mode="$tls" --get-server-public-key -Nse "$question"
}
question="DO 1"
# The defaults of the server may limit the time of a query, or reject a join of many rows.
[ "$1" = ready ] && question="SET max_execution_time = 0, sql_big_selects = ON; SELECT UUID_TO_BIN(IF(COUNT(*) = 0, UUID(), 'a replication thread is stopped')) IS NULL
  FROM performance_schema.replication_connection_status c JOIN performance_schema.replication_applier_status a USING (channel_name)
  WHERE c.channel_name = '' AND (c.service_state = 'OFF' OR a.service_state = 'OFF')"
[ "$1" = ready ] || [ -z "${MOCO_ACCOUNTS:-}" ] || ask moco-admin REQUIRED command || exit
ask moco-agent PREFERRED exec
