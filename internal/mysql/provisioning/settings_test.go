// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

func TestSettingsAreClassed(t *testing.T) {
	const sizes = "[mysqld]\nback_log=900\ninnodb_page_size=16k\n"
	for name, row := range map[string]struct {
		key, value string
		seen       settingContext
		class      settingClass
		harm       string
	}{
		"long_query_time, which has no rule: allowed":                                   {key: "long_query_time", value: "5"},
		"named time zone, new server without time zone tables: refused":                 {key: "default-time-zone", value: "'Asia/Tokyo'", seen: settingContext{IsNew: true}, harm: "spec.initializeTimezoneData"},
		"named time zone, new server with time zone tables: allowed":                    {key: "default_time_zone", value: "Asia/Tokyo", seen: settingContext{IsNew: true, LoadsTimeZones: true}},
		"named time zone, existing servers: allowed":                                    {key: "default_time_zone", value: "Asia/Tokyo"},
		"time zone offset, new server: allowed":                                         {key: "default_time_zone", value: "+09:00", seen: settingContext{IsNew: true}},
		"sql_mode: allowed":                                                             {key: "sql_mode", value: "NO_BACKSLASH_ESCAPES,ANSI_QUOTES"},
		"small max_allowed_packet: allowed":                                             {key: "max_allowed_packet", value: "1M"},
		"require_secure_transport: allowed":                                             {key: "require_secure_transport", value: "ON"},
		"gtid_mode: overruled":                                                          {key: "loose-gtid_mode", value: "OFF", class: overruled},
		"disable-log-bin, which negates a forced setting: overruled":                    {key: "disable-log-bin", class: overruled},
		"rpl_semi_sync_source_timeout, which clustering changes at run time: overruled": {key: "rpl_semi_sync_source_timeout", value: "10000", class: overruled},
		"rpl_semi_sync_master_enabled, the old name of a semi-sync setting: overruled":  {key: "rpl_semi_sync_master_enabled", value: "ON", class: overruled},
		"server-id, which is on the server's command line: overruled":                   {key: "server-id", value: "1", class: overruled},
		"binlog_error_action that keeps commits out of the binary log: overruled":       {key: "binlog_error_action", value: "IGNORE_ERROR", class: overruled},
		"binary log filter: refused":                                                    {key: "binlog-ignore-db", value: "x", class: refused, harm: "replicas would lack rows"},
		"replication filter: refused":                                                   {key: "replicate_wild_do_table", value: "x.%", class: refused, harm: "replicas would lack rows"},
		"innodb_undo_directory outside the volume: refused":                             {key: "innodb_undo_directory", value: "/tmp", class: refused, harm: "outside the volume"},
		"innodb_undo_directory in the volume: accepted":                                 {key: "innodb_undo_directory", value: "undo", class: refused},
		"skip_grant_tables: refused":                                                    {key: "skip-grant-tables", class: refused, harm: "an administrator"},
		"skip_grant_tables turned off: accepted":                                        {key: "skip_grant_tables", value: "off", class: refused},
		"skip_networking: refused":                                                      {key: "skip_networking", value: "1", class: refused, harm: "could not connect"},
		"bind-address with only the loopback address: refused":                          {key: "bind-address", value: "127.0.0.1", class: refused, harm: "other Pods"},
		"bind_address with all addresses: accepted":                                     {key: "bind_address", value: "*", class: refused},
		"offline_mode: refused":                                                         {key: "offline_mode", value: "ON", class: refused, harm: "spec.offline"},
		"innodb_read_only: refused":                                                     {key: "innodb_read_only", class: refused, harm: "the primary"},
		"transaction-read-only: refused":                                                {key: "transaction-read-only", value: "ON", class: refused, harm: "clients' sessions"},
		"innodb_force_recovery: refused":                                                {key: "innodb_force_recovery", value: "6", class: refused, harm: "a copy of one volume"},
		"innodb_force_recovery of 0: accepted":                                          {key: "innodb_force_recovery", value: "0", class: refused},
		"InnoDB flush method without fsync: refused":                                    {key: "innodb_flush_method", value: "nosync", class: refused, harm: "lost in a crash"},
		"InnoDB flush method with fsync: accepted":                                      {key: "innodb_flush_method", value: "fsync", class: refused},
		"disabled_storage_engines with InnoDB: refused":                                 {key: "disabled_storage_engines", value: "MyISAM, innodb", class: refused, harm: "leave InnoDB out"},
		"disabled_storage_engines with only MyISAM: accepted":                           {key: "disabled_storage_engines", value: "MyISAM", class: refused},
		"setting of group replication: refused":                                         {key: "loose_group_replication_group_name", value: "x", class: refused, harm: "Group Replication"},
		"init_connect with a statement that may fail: refused":                          {key: "init_connect", value: `"SET NAMES utf8mb4; INSERT INTO audit.t VALUES (1)"`, class: refused, harm: "ends the sessions"},
		"init_connect with SET only: accepted":                                          {key: "init_connect", value: "SET NAMES utf8mb4; set autocommit=0", class: refused},
		"required second authentication factor: refused":                                {key: "authentication_policy", value: "*,authentication_webauthn", class: refused, harm: "would not suffice"},
		"default authentication plugin that ignores MySQL passwords: refused":           {key: "authentication_policy", value: "*:authentication_ldap_simple", class: refused, harm: "would not suffice"},
		"optional authentication factors: accepted":                                     {key: "authentication_policy", value: "*,,", class: refused},
		"low max_user_connections: refused":                                             {key: "max_user_connections", value: "3", class: refused, harm: "share accounts"},
		"max_user_connections of 0, which means no limit: accepted":                     {key: "max_user_connections", value: "0", class: refused},
		"low max_connections: refused":                                                  {key: "max_connections", value: "1", class: refused, harm: "at least 20"},
		"sufficient max_connections: accepted":                                          {key: "max_connections", value: "20", class: refused},
		"Performance Schema without thread instances: refused":                          {key: "performance_schema_max_thread_instances", value: "0", class: refused, harm: "by their threads"},
		"binlog_row_event_max_size without room for the event header: refused":          {key: "binlog_row_event_max_size", value: "4294967040", class: refused, harm: "use at most 4294901760"},
		"binlog_row_event_max_size of 4G: refused":                                      {key: "binlog_row_event_max_size", value: "4G", class: refused, harm: "use at most 4294901760"},
		"binlog_row_event_max_size with room for the event header: accepted":            {key: "binlog_row_event_max_size", value: "4294901760", class: refused},
		"binlog_row_event_max_size of 3g: accepted":                                     {key: "binlog_row_event_max_size", value: "3g", class: refused},
		"lower_case_table_names=1, new server: accepted":                                {key: "lower_case_table_names", value: "1", seen: settingContext{IsNew: true}, class: fixed},
		"lower_case_table_names=1, existing servers with 0: refused":                    {key: "lower-case-table-names", value: "1", seen: settingContext{Running: "[mysqld]\nback_log=900"}, class: fixed, harm: "expected 0, as in the existing data directories, found 1"},
		"same lower_case_table_names as the existing servers: accepted":                 {key: "lower_case_table_names", value: "0", seen: settingContext{Running: "[mysqld]\nback_log=900"}, class: fixed},
		"same InnoDB page size as the existing servers: accepted":                       {key: "innodb_page_size", value: "16384", seen: settingContext{Running: sizes}, class: fixed},
		"different InnoDB page size than the existing servers: refused":                 {key: "innodb_page_size", value: "4K", seen: settingContext{Running: sizes}, class: fixed, harm: "expected 16k"},
		"removed InnoDB page size of existing servers: refused":                         {key: "long_query_time", value: "5", seen: settingContext{Running: "[mysqld]\ninnodb_page_size=4k"}, harm: "expected 4k, as in the existing data directories, found 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.ExpectEqual(t, "class", row.class, findSettingRule(listSettingRules(), row.key).class)
			asText := map[string]string{includeKey: "# text\n[mysqld]\n" + row.key + " = " + row.value + "\n"}
			for _, user := range []map[string]string{{row.key: row.value}, asText} {
				found := strings.Join(describeHarmfulSettings(user, row.seen), "; ")
				if (found != "") != (row.harm != "") || !strings.Contains(found, row.harm) {
					t.Errorf("expected harm %q, found %q", row.harm, found)
				}
				_, ignored := BuildMyCnf(user, ServerSizes{})
				testenv.ExpectEqual(t, "ignored", row.class == overruled, len(ignored) > 0)
			}
			other := map[string]string{includeKey: "[mysqldump]\n" + row.key + " = " + row.value + "\n"}
			if found := describeHarmfulSettings(other, settingContext{IsNew: true}); len(found) > 0 {
				t.Errorf("expected settings of another program to be kept, found %v", found)
			}
		})
	}
}

// TestSettingRulesNameOptions compares the table of rules with the options of the real server.
func TestSettingRulesNameOptions(t *testing.T) {
	place := mysqld.FindServerPrograms(t)
	line := append(slices.Clone(place.Command), "--no-defaults")
	line = append(line, place.Options...)
	// The help text lists a plugin's options only if the plugin is loaded.
	help, err := exec.CommandContext(t.Context(), line[0], append(line[1:], "--verbose", "--help")...).Output()
	testenv.ExpectNoError(t, err)
	known := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^ +(?:-.[, ] *)?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		known[variableOf(found[1])] = true
	}
	// Plugins have their own options, and some options of older versions no longer exist.
	elsewhere := regexp.MustCompile(`^(rpl_semi_sync_|clone_|mysqlx_|group_replication_|ndb|log_slave_updates$|slave_|admin_ssl$|ssl$|gdb$)`)
	for _, rule := range listSettingRules() {
		for _, name := range rule.names {
			prefix, isPattern := strings.CutSuffix(name, "*")
			hasOption := known[variableOf(name)]
			for option := range known {
				hasOption = hasOption || isPattern && strings.HasPrefix(option, prefix)
			}
			if bare := variableOf(name); !hasOption && !elsewhere.MatchString(bare) {
				t.Errorf("expected an option of mysqld, found %s", name)
			}
		}
	}
}

// TestCharacterSetsMatch covers settings in which the user specifies only a character set or only a collation.
func TestCharacterSetsMatch(t *testing.T) {
	for name, row := range map[string]struct {
		user        map[string]string
		want, avoid string
	}{
		"no character set and no collation: utf8mb4":                                {nil, "character_set_server=utf8mb4\ncollation_server=utf8mb4_unicode_ci\n", "latin1"},
		"character set without a collation: the server's default collation applies": {map[string]string{"character-set-server": "latin1"}, "character-set-server=latin1\n", "collation_server"},
		"collation without a character set: its character set is added":             {map[string]string{"collation_server": "latin1_german1_ci"}, "character_set_server=latin1\ncollation_server=latin1_german1_ci\n", "utf8mb4_"},
		"character set in _include: the server's default collation applies":         {map[string]string{includeKey: "character_set_server=latin1"}, "character_set_server=latin1\n", "collation_server"},
		"matching character set and collation: kept":                                {map[string]string{"character_set_server": "latin1", "collation_server": "latin1_bin"}, "character_set_server=latin1\ncollation_server=latin1_bin\n", "utf8mb4_"},
	} {
		t.Run(name, func(t *testing.T) {
			cnf, _ := BuildMyCnf(row.user, ServerSizes{})
			normal := strings.ReplaceAll(cnf, "-", "_")
			if !strings.Contains(normal, strings.ReplaceAll(row.want, "-", "_")) || strings.Contains(normal, row.avoid) {
				t.Errorf("expected %q without %q, found\n%s", row.want, row.avoid, cnf)
			}
		})
	}
}
