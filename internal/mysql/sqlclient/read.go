// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// readStatement reads everything at once: an idle cluster must cost its servers next to nothing.
const readStatement = `select @@global.server_uuid, @@global.version, @@global.gtid_executed, @@global.gtid_purged,
 @@global.read_only, @@global.super_read_only,
 (select json_objectagg(lower(variable_name), variable_value) from performance_schema.global_variables
  where variable_name like 'rpl\_semi\_sync\_%'),
 (select json_objectagg(lower(variable_name), variable_value) from performance_schema.global_status
  where variable_name in ('Rpl_semi_sync_source_wait_sessions', 'Rpl_semi_sync_master_wait_sessions')),
 (select state from performance_schema.clone_status order by id desc limit 1),
 (select json_arrayagg(convert(v.variable_value using utf8mb4)) from performance_schema.user_variables_by_thread v
  join performance_schema.threads t on t.thread_id = v.thread_id
  where t.processlist_command like 'Binlog Dump%' and v.variable_name = 'replica_uuid'),
 (select max(time) from performance_schema.processlist
  where command = 'Query' and info like '` + statementMark + `%' and id <> connection_id()),
 (select json_object('host', c.host, 'uuid', s.source_uuid, 'auto', c.auto_position, 'io', s.service_state,
   'retrieved', s.received_transaction_set, 'ioerrno', s.last_error_number, 'sql', a.service_state,
   'sqlerrno', greatest(
     (select ifnull(max(w.last_error_number), 0) from performance_schema.replication_applier_status_by_worker w where w.channel_name = ''),
     (select ifnull(max(o.last_error_number), 0) from performance_schema.replication_applier_status_by_coordinator o where o.channel_name = '')),
   'lag', (select max(timestampdiff(microsecond, w.applying_transaction_original_commit_timestamp, now(6)))
     from performance_schema.replication_applier_status_by_worker w
     where w.channel_name = '' and w.applying_transaction <> ''))
  from performance_schema.replication_connection_configuration c
  join performance_schema.replication_connection_status s on s.channel_name = c.channel_name
  join performance_schema.replication_applier_status a on a.channel_name = c.channel_name
  where c.channel_name = '' and c.host <> '')`

// ReadFacts asks the server for everything, with one statement.
func (s *Server) ReadFacts(ctx context.Context) (ServerFacts, error) {
	var f ServerFacts
	var variables, status, clone, connected, channel sql.NullString
	var pending sql.NullInt64
	err := s.db.QueryRowContext(ctx, readStatement).Scan(&f.UUID, &f.Version, &f.Executed, &f.Purged,
		&f.ReadOnly, &f.SuperReadOnly, &variables, &status, &clone, &connected, &pending, &channel)
	if err != nil {
		return ServerFacts{}, fmt.Errorf("read the server's state: %w", err)
	}
	f.Executed, f.Purged, f.Clone = removeLineBreaks(f.Executed), removeLineBreaks(f.Purged), clone.String
	f.Pending, f.PendingFor = pending.Valid, time.Duration(pending.Int64)*time.Second
	if connected.Valid {
		if err := json.Unmarshal([]byte(connected.String), &f.Connected); err != nil {
			return ServerFacts{}, fmt.Errorf("read the connected replicas: %w", err)
		}
	}
	if f.SemiSync, err = parseSemiSync(variables.String, status.String); err != nil {
		return ServerFacts{}, err
	}
	if channel.Valid {
		f.Replication, err = parseReplication(channel.String)
	}
	return f, err
}

// removeLineBreaks takes out the line breaks that MySQL puts between the UUIDs of a set.
func removeLineBreaks(set string) string { return strings.ReplaceAll(set, "\n", "") }

func parseSemiSync(variables, status string) (SemiSync, error) {
	values := map[string]string{}
	for _, text := range []string{variables, status} {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			return SemiSync{}, fmt.Errorf("read the semi-sync variables: %w", err)
		}
	}
	_, isNew := values["rpl_semi_sync_source_enabled"]
	_, isOld := values["rpl_semi_sync_master_enabled"]
	s := SemiSync{UsesOldNames: isOld && !isNew}
	source, replica := s.variablePrefixes()
	s.Source, s.Replica = values[source+"_enabled"] == "ON", values[replica+"_enabled"] == "ON"
	s.WaitFor, _ = strconv.Atoi(values[source+"_wait_for_"+strings.TrimPrefix(replica, "rpl_semi_sync_")+"_count"])
	milliseconds, _ := strconv.Atoi(values[source+"_timeout"])
	s.Timeout = time.Duration(milliseconds) * time.Millisecond
	s.Waiting, _ = strconv.Atoi(values[source+"_wait_sessions"])
	return s, nil
}

func (s SemiSync) variablePrefixes() (source, replica string) {
	if s.UsesOldNames {
		return "rpl_semi_sync_master", "rpl_semi_sync_slave"
	}
	return "rpl_semi_sync_source", "rpl_semi_sync_replica"
}

func parseReplication(channel string) (*ReplicationFacts, error) {
	var raw struct {
		Host, UUID, Auto, IO, Retrieved, SQL string
		IOErrno, SQLErrno                    int
		Lag                                  *int64
	}
	if err := json.Unmarshal([]byte(channel), &raw); err != nil {
		return nil, fmt.Errorf("read the replication channel: %w", err)
	}
	r := &ReplicationFacts{
		SourceHost: raw.Host, SourceUUID: raw.UUID, AutoPosition: raw.Auto == "1",
		Retrieved: removeLineBreaks(raw.Retrieved), IOErrno: raw.IOErrno, SQLErrno: raw.SQLErrno,
		IO: raw.IO == "ON", Connecting: raw.IO == "CONNECTING", SQL: raw.SQL == "ON",
	}
	if raw.Lag != nil {
		r.Lag = time.Duration(*raw.Lag) * time.Microsecond
	}
	return r, nil
}
