// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// These files of the ConfigMap are mounted under configFolder in the containers.
const (
	configFolder = "/etc/mysql"
	cnfFile      = "my.cnf"
	initFile     = "moco-init.sh"
	serverFile   = "moco-mysqld.sh"
	probeFile    = "moco-probe.sh"
	slowLogFile  = "moco-slow-log.sh"
	renewalFile  = "moco-accounts.sql"
)

// tlsFolder contains the server's certificate in the containers.
const tlsFolder = "/etc/mysql-tls"

// includeKey is the key of the user's ConfigMap whose text is included without its overruled settings.
const includeKey = "_include"

// defaultSettings returns the settings that the user may change. They have MOCO's values where a client can notice the
// difference, so a manifest for MOCO has the same effect with Torpor.
func defaultSettings() map[string]string {
	return map[string]string{
		"character_set_server": "utf8mb4", "collation_server": "utf8mb4_unicode_ci", "default_time_zone": "+0:00",
		"transaction_isolation": "READ-COMMITTED", "lock_wait_timeout": "60", "innodb_lock_wait_timeout": "60", "wait_timeout": "604800",
		"max_connections": "100000", "back_log": "900", "max_allowed_packet": "1G", "max_sp_recursion_depth": "20",
		"disabled_storage_engines": "MyISAM", "information_schema_stats_expiry": "0", "print_identified_with_as_hex": "ON",
		"sort_buffer_size": "4M", "join_buffer_size": "2M", "tmp_table_size": "64M", "max_heap_table_size": "64M",
		"thread_cache_size": "100", "table_open_cache": "65536", "table_definition_cache": "65536",
		"loose_binlog_transaction_compression": "ON",
		"innodb_flush_method":                  "O_DIRECT", "innodb_adaptive_hash_index": "ON", "innodb_online_alter_log_max_size": "1073741824",
		"innodb_flush_neighbors": "0", "innodb_random_read_ahead": "OFF", "innodb_read_ahead_threshold": "0",
		"innodb_buffer_pool_dump_pct": "100", "innodb_buffer_pool_dump_at_shutdown": "1", "innodb_buffer_pool_load_at_startup": "0",
		"innodb_buffer_pool_in_core_file": "OFF", "loose_innodb_validate_tablespace_paths": "OFF", "innodb_undo_log_truncate": "ON",
		"innodb_print_all_deadlocks": "1", "log_error_verbosity": "3", "slow_query_log": "ON", "long_query_time": "2", "log_slow_extra": "ON",
	}
}

// forcedSettings returns the settings on which clustering and the Pod depend. Settings that differ between Pods are on
// the command line.
func forcedSettings() map[string]string {
	return map[string]string{
		"datadir": "/var/lib/mysql/data", "tmpdir": "/tmp", "socket": "/run/mysqld.sock", "pid_file": "/run/mysqld.pid",
		"secure_file_priv": "NULL", "skip_name_resolve": "ON", "loose_mysqlx_socket": "/run/mysqlx.sock",
		"port": fmt.Sprint(mysqlPort), "admin_port": fmt.Sprint(adminPort), "loose_mysqlx_port": fmt.Sprint(mysqlxPort),
		"gtid_mode": "ON", "enforce_gtid_consistency": "ON", "loose_binlog_format": "ROW", "log_bin": "binlog",
		"log_replica_updates": "ON", "relay_log": "relay", "relay_log_recovery": "OFF", "skip_replica_start": "ON",
		"read_only": "ON", "super_read_only": "ON",
		// serverScript limits the size of these logs.
		"slow_query_log_file": logFolder + "/mysql.slow", "general_log_file": logFolder + "/mysql.general",
		// With other values an acknowledged commit might be lost, or might not be on any replica.
		"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "replica_exec_mode": "STRICT", "replica_skip_errors": "OFF",
		"binlog_error_action":                        "ABORT_SERVER",
		"loose_rpl_semi_sync_source_wait_no_replica": "ON", "loose_rpl_semi_sync_source_wait_point": "AFTER_SYNC",
		// Clustering queries performance_schema. It uses partial_revokes to protect its accounts from applications.
		"performance_schema": "ON", "partial_revokes": "ON",
		// Clustering, replicas and backups accept only this CA.
		"ssl_ca": tlsFolder + "/" + certificates.AuthorityFile, "ssl_cert": tlsFolder + "/" + certificates.CertificateFile,
		"ssl_key": tlsFolder + "/" + certificates.KeyFile,
	}
}

// perPodSettings returns the settings on the command line of every server.
func perPodSettings() []string { return []string{"server_id", "admin_address", "report_host"} }

// requiredPlugins returns the plugins that clustering needs. They have had these names since MySQL 8.0.26, and only
// these names since 9.0.
func requiredPlugins() []string {
	return []string{"semisync_source.so", "semisync_replica.so", "mysql_clone.so"}
}

// ServerSizes holds the sizes of a server in bytes. 0 means unknown.
type ServerSizes struct{ Memory, Volume int64 }

// roomForRedo is the smallest volume size with which the redo log is as large as MOCO's. A server allocates the redo
// log at its first start.
const roomForRedo = 8 << 30

// BuildMyCnf builds the configuration of a server with the given sizes. It also returns the user's settings that are
// ignored because clustering requires other values. If a setting occurs several times, under any of its names, the last
// one applies.
func BuildMyCnf(user map[string]string, sizes ServerSizes) (text string, ignored []string) {
	const least, percent, hundred = 128 << 20, 70, 100
	all := defaultSettings()
	all["innodb_buffer_pool_size"] = fmt.Sprint(max(least, sizes.Memory/hundred*percent))
	if sizes.Volume >= roomForRedo {
		all["loose_innodb_redo_log_capacity"] = "1600M"
	}
	rules := listSettingRules()
	isOverruled := func(name string) bool { return findSettingRule(rules, name).class == overruled }
	for _, key := range sortedKeys(user) {
		switch name := variableOf(key); {
		case key == includeKey:
		case isOverruled(key):
			ignored = append(ignored, key)
		default:
			maps.DeleteFunc(all, func(other, _ string) bool { return variableOf(other) == name })
			all[strings.ReplaceAll(key, "-", "_")] = user[key]
		}
	}
	var more strings.Builder
	walkText(strings.TrimRight(user[includeKey], "\n"), func(line string, isServer bool) {
		name, _, isSetting := parseLine(line)
		if isSetting && isServer && isOverruled(name) {
			ignored = append(ignored, includeKey+": "+name)
			return
		}
		more.WriteString(line + "\n")
	})
	matchCharacterSet(all, listUserSettings(user))
	var b strings.Builder
	b.WriteString("[client]\nsocket=/run/mysqld.sock\nloose_default_character_set=utf8mb4\n\n[mysqld]\n")
	writeSettings(&b, all)
	if user[includeKey] != "" {
		b.WriteString("\n" + more.String())
	}
	b.WriteString("\n[mysqld]\n")
	writeSettings(&b, forcedSettings())
	for _, p := range requiredPlugins() {
		fmt.Fprintf(&b, "plugin_load_add=%s\n", p)
	}
	return b.String(), ignored
}

// matchCharacterSet completes the settings if the user has specified only a character set or only a collation. A server
// does not start if its collation belongs to another character set.
func matchCharacterSet(all map[string]string, user []userSetting) {
	chosen := map[string]string{}
	for _, s := range user {
		chosen[variableOf(s.name)] = s.value
	}
	set, collation := chosen["character_set_server"], chosen["collation_server"]
	switch {
	case set != "" && collation == "":
		delete(all, "collation_server") // The server uses the default of the character set.
	case set == "" && collation != "":
		all["character_set_server"], _, _ = strings.Cut(collation, "_")
	}
}

func writeSettings(b *strings.Builder, settings map[string]string) {
	for _, key := range sortedKeys(settings) {
		fmt.Fprintf(b, "%s=%s\n", key, settings[key])
	}
}

// variableOf returns the variable that a setting changes. Option prefixes only determine how the value is applied.
func variableOf(setting string) string {
	name := strings.ReplaceAll(strings.ToLower(setting), "-", "_")
	for {
		before := name
		for _, prefix := range []string{"loose_", "skip_", "disable_", "enable_", "maximum_"} {
			name = strings.TrimPrefix(name, prefix)
		}
		if name == before {
			return name
		}
	}
}

// buildConfigMap builds the ConfigMap with my.cnf and the scripts. Its name depends on its content, so a Pod keeps its
// ConfigMap until the Pod is replaced.
func buildConfigMap(c *mocov1beta2.MySQLCluster, cnf string) *unstructured.Unstructured {
	files := map[string]string{
		cnfFile: cnf, initFile: initScript, serverFile: serverScript, probeFile: probeScript, slowLogFile: slowLogScript, renewalFile: joinStatements(mysqlusers.BuildRenewalStatements()),
	}
	sum := fnv.New32a()
	for _, name := range sortedKeys(files) {
		_, _ = sum.Write([]byte(name + "\x00" + files[name] + "\x00")) // Writing to a hash never fails.
	}
	return newObject(c, "v1", "ConfigMap", fmt.Sprintf("%s.%08x", c.ChildName(), sum.Sum32()), map[string]any{"data": toJSONMap(files)})
}

// memoryRequest returns the memory request of the server's container in bytes. If there is no request, it returns the
// limit; if there is no limit either, it returns 0.
func memoryRequest(spec mocov1beta2.PodSpec) int64 {
	var found struct {
		Containers []struct {
			Name      string `json:"name"`
			Resources struct {
				Requests map[string]resource.Quantity `json:"requests"`
				Limits   map[string]resource.Quantity `json:"limits"`
			} `json:"resources"`
		} `json:"containers"`
	}
	if err := utiljson.Unmarshal(spec.Raw, &found); err != nil {
		return 0 // The API server reports the error when the StatefulSet is applied.
	}
	for _, c := range found.Containers {
		if c.Name != mocov1beta2.MysqldContainer {
			continue
		}
		for _, of := range []map[string]resource.Quantity{c.Resources.Requests, c.Resources.Limits} {
			if q, ok := of["memory"]; ok {
				return q.Value()
			}
		}
	}
	return 0
}
