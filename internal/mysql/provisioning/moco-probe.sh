#!/bin/sh
# Asks the server how it is, for the kubelet: "alive" whether it answers, since a hung server keeps its port open, and "ready"
# whether it is also no replica whose replication has stopped. It comes in where clients cannot crowd it out.
set -u
question="SELECT 1"
[ "$1" = ready ] && question="SELECT COUNT(*) = 0 FROM performance_schema.replication_connection_status c
  JOIN performance_schema.replication_applier_status a USING (channel_name)
  WHERE c.channel_name = '' AND (c.service_state = 'OFF' OR a.service_state = 'OFF')"
answer=$(${MOCO_MYSQL:-mysql} --defaults-file="${MOCO_CREDENTIALS:-/mysql-credentials}/moco-agent-my.cnf" --protocol=tcp \
  --host="$MOCO_POD_IP" --port=33062 --connect-timeout=2 --get-server-public-key -Nse "$question" 2>&1) || { echo "$answer"; exit 1; }
[ "$answer" = 1 ]
