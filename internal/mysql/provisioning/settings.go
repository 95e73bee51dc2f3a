// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// settingClass defines the treatment of a setting in the user's ConfigMap. The zero value applies to every setting
// without a rule: these settings are written unchanged.
type settingClass int

const (
	// overruled settings are omitted, because clustering requires other values. The condition SpecFullySupported lists
	// them.
	overruled settingClass = iota + 1
	// refused settings would stop the servers or lose data. Nothing is applied until the user corrects them.
	refused
	// fixed settings are properties of the data directory. They are refused if they differ from the settings of
	// existing servers.
	fixed
)

// settingRule assigns a class to some settings.
type settingRule struct {
	class settingClass
	// names lists the settings, with all names that any version of MySQL accepts, without prefixes such as loose_. A
	// trailing asterisk matches any suffix.
	names []string
	// why is the reason for a refusal, and the user's next step. The message contains it after the setting and its
	// value.
	why string
	// accepts reports whether a value is harmless. If accepts is nil, every value is refused.
	accepts func(value string) bool
	// initial is the value of a fixed setting in servers that were created without the setting.
	initial string
}

// listSettingRules returns the rules for all settings that are not allowed with every value.
func listSettingRules() []settingRule {
	return slices.Concat(listOverruledSettings(), []settingRule{
		{class: fixed, names: []string{"lower_case_table_names"}, initial: "0"},
		{class: fixed, names: []string{"innodb_page_size"}, initial: "16384"},
		{class: fixed, names: []string{"innodb_data_file_path"}, initial: "ibdata1:12M:autoextend"},
	}, listSettingsThatLoseData(), listSettingsThatStopServers())
}

// listOverruledSettings returns rules for the settings whose values come from forcedSettings, the command line, or
// clustering.
func listOverruledSettings() []settingRule {
	return []settingRule{
		{class: overruled, names: append(sortedKeys(forcedSettings()), perPodSettings()...)},
		// These are other names of forced settings, and settings that would override forced settings.
		{class: overruled, names: []string{
			"log_slave_updates", "skip_slave_start", "slave_skip_errors", "slave_exec_mode", "rpl_semi_sync_master_wait_no_slave",
			"rpl_semi_sync_master_wait_point", "plugin_load", "init_file", "log_error",
			"ssl", "ssl_capath", "admin_ssl", "admin_ssl_ca", "admin_ssl_capath", "admin_ssl_cert", "admin_ssl_key",
		}},
		// Clustering sets these settings in the running servers.
		{class: overruled, names: []string{
			"rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled", "rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled",
			"rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout", "rpl_semi_sync_source_wait_for_replica_count",
			"rpl_semi_sync_master_wait_for_slave_count", "clone_valid_donor_list", "clone_ssl_ca",
		}},
	}
}

// refuse returns a rule that refuses settings unless their value is accepted.
func refuse(why string, accepts func(value string) bool, names ...string) settingRule {
	return settingRule{class: refused, names: names, why: why, accepts: accepts}
}

func listSettingsThatLoseData() []settingRule {
	return []settingRule{
		refuse("replicas would lack rows without an error, and a failover would lose them; remove the setting", nil,
			"binlog_do_db", "binlog_ignore_db", "replicate_*"),
		refuse("data outside the volume would be lost with the Pod; remove the setting", isInDataFolder,
			"innodb_data_home_dir", "innodb_log_group_home_dir", "innodb_undo_directory", "innodb_doublewrite_dir", "log_bin_index",
			"relay_log_index"),
		refuse("acknowledged commits would be lost in a crash; use O_DIRECT or fsync", isSafeFlushMethod, "innodb_flush_method"),
		refuse(fmt.Sprintf("the server could not send events of a few kilobytes to replicas and backups; use at most %d", largestRowEvent),
			isSendableRowEvent, "binlog_row_event_max_size"),
		refuse("InnoDB would refuse writes or drop data on every instance; use the setting only on a copy of one volume", isOff,
			"innodb_force_recovery"),
		refuse("every client would be an administrator; remove the setting", isOff, "grant_tables"),
	}
}

func listSettingsThatStopServers() []settingRule {
	return []settingRule{
		refuse("the server would end instead of serving; remove the setting", nil,
			"initialize", "initialize_insecure", "help", "verbose", "validate_config", "daemonize", "chroot", "gdb", "user"),
		refuse("replicas and clients could not connect; remove the setting", isOff, "networking"),
		refuse("replicas and probes could not log in; remove the setting, and use spec.offline", isOff, "offline_mode"),
		refuse("replicas connect from other Pods; use *, or remove the setting", isEveryAddress, "bind_address"),
		// A server that starts with this setting does not create performance_schema.clone_status.
		refuse("the server would lack tables of its plugins; use the setting only in the clients' sessions", isOff, "transaction_read_only"),
		refuse("no server could become the primary; remove the setting", isOff, "innodb_read_only"),
		refuse("InnoDB stores the users' data; leave InnoDB out of the list", keepsInnoDB, "disabled_storage_engines"),
		refuse("clustering does not work with Group Replication or NDB; remove the setting", nil, "group_replication_*", "ndb_*", "ndbcluster"),
		refuse("a statement other than SET may fail, and a failure ends the sessions of replicas and probes; "+
			"use only SET, or remove the setting", hasOnlySets,
			"init_connect", "init_replica", "init_slave"),
		refuse("passwords would not suffice for Torpor's own accounts; use caching_sha2_password as the only factor, or the value *,,", needsOnlyPassword,
			"authentication_policy"),
		refuse("the manager, replicas and backups share accounts; use 0, or at least 20", isUnlimitedOrHasRoom, "max_user_connections"),
		refuse("replicas need connections in addition to clients; use at least 20", hasRoom, "max_connections"),
		refuse("clustering finds connected replicas by their threads; remove the setting", isNotZero,
			"performance_schema_max_thread_instances", "performance_schema_max_thread_classes"),
	}
}

// leastConnections is the minimum for limits of connections. A manager opens five connections to a server, and a second
// manager may do so during a change of the leader. Each replica opens one connection, and a backup opens three.
const leastConnections = 20

// largestRowEvent is the largest accepted value of binlog_row_event_max_size. It leaves room for the event header. Just
// below 4 GiB, the server's sum of the value and the header's size overflows, and the result is the maximum size of the
// events that the server sends.
const largestRowEvent = 1<<32 - 1<<16

// settingContext holds the facts, in addition to the value, that determine whether a setting is harmful.
type settingContext struct {
	// LoadsTimeZones is true if the time zone tables are loaded into new data directories.
	LoadsTimeZones bool
	// IsNew is true until the first server is created.
	IsNew bool
	// Running is the content of my.cnf of the existing servers. It is empty if the content is unknown.
	Running string
}

// userSetting is a setting in the ConfigMap. key is the name as written by the user, with its location.
type userSetting struct{ key, name, value string }

// findSettingRule returns the rule for a setting, or an empty rule if there is none.
func findSettingRule(rules []settingRule, setting string) settingRule {
	name := variableOf(setting)
	for _, r := range rules {
		if slices.ContainsFunc(r.names, func(listed string) bool {
			prefix, isPattern := strings.CutSuffix(listed, "*")
			return !isPattern && variableOf(listed) == name || isPattern && strings.HasPrefix(name, prefix)
		}) {
			return r
		}
	}
	return settingRule{}
}

// describeHarmfulSettings returns sorted descriptions of the settings that must not reach a server.
func describeHarmfulSettings(user map[string]string, seen settingContext) []string {
	var found []string
	rules, settings := listSettingRules(), listUserSettings(user)
	for _, s := range settings {
		if why := describeHarm(findSettingRule(rules, s.name), s, seen); why != "" {
			found = append(found, why)
		}
	}
	for _, r := range rules {
		if why := describeChange(r, settings, seen); why != "" {
			found = append(found, why)
		}
	}
	slices.Sort(found)
	return found
}

func describeHarm(r settingRule, s userSetting, seen settingContext) string {
	switch {
	case r.class == refused && (r.accepts == nil || !r.accepts(s.value)):
		return fmt.Sprintf("%s=%.60s: %s", s.key, s.value, r.why)
	case variableOf(s.name) == "default_time_zone" && seen.IsNew && !seen.LoadsTimeZones && isNamedTimeZone(s.value):
		return fmt.Sprintf("%s=%.60s: a new server has no named time zones; set spec.initializeTimezoneData, "+
			"or use an offset such as +09:00", s.key, s.value)
	}
	return ""
}

// describeChange describes a fixed setting that differs from the value of the existing servers.
func describeChange(r settingRule, user []userSetting, seen settingContext) string {
	if r.class != fixed || seen.Running == "" {
		return ""
	}
	key, value := r.names[0], r.initial
	for _, s := range user {
		if variableOf(s.name) == variableOf(r.names[0]) {
			key, value = s.key, s.value
		}
	}
	running := lastSetting(seen.Running, r.names[0], r.initial)
	if normalizeSize(running) == normalizeSize(value) {
		return ""
	}
	return fmt.Sprintf("%s: expected %s, as in the existing data directories, found %.60s; revert it, "+
		"or restore a backup into a new MySQLCluster", key, running, value)
}

// listUserSettings returns the settings of the ConfigMap, including those in the text of the key _include.
func listUserSettings(user map[string]string) []userSetting {
	var all []userSetting
	for _, key := range sortedKeys(user) {
		if key != includeKey {
			all = append(all, userSetting{key, key, unquote(user[key])})
		}
	}
	walkText(user[includeKey], func(line string, isServer bool) {
		if name, value, isSetting := parseLine(line); isSetting && isServer {
			all = append(all, userSetting{includeKey + ": " + name, name, value})
		}
	})
	return all
}

// walkText calls visit for each line of a my.cnf text. The text begins in the section [mysqld].
func walkText(text string, visit func(line string, isServer bool)) {
	isServer := true
	for line := range strings.SplitSeq(text, "\n") {
		if section, isSection := sectionOf(line); isSection {
			isServer = isServerSection(section)
		}
		visit(line, isServer)
	}
}

// lastSetting returns the last value of a setting in my.cnf. If the setting is missing, it returns initial.
func lastSetting(cnf, setting, initial string) string {
	value := initial
	for line := range strings.SplitSeq(cnf, "\n") {
		if name, found, isSetting := parseLine(line); isSetting && variableOf(name) == variableOf(setting) {
			value = found
		}
	}
	return value
}

func sectionOf(line string) (string, bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") {
		return "", false
	}
	section, _, _ := strings.Cut(line[1:], "]")
	return section, true
}

// isServerSection reports whether mysqld reads a section. The name may contain a version, as in [mysqld-9.7].
func isServerSection(name string) bool {
	return name == "server" || name == "mysqld" || strings.HasPrefix(name, "mysqld-")
}

// parseLine parses a line of my.cnf.
func parseLine(line string) (name, value string, isSetting bool) {
	line = strings.TrimSpace(line)
	if line == "" || strings.ContainsAny(line[:1], "#;[!") {
		return "", "", false
	}
	name, value, _ = strings.Cut(line, "=")
	if !strings.ContainsAny(value, `"'`) {
		value, _, _ = strings.Cut(value, "#")
	}
	return strings.TrimSpace(name), unquote(value), true
}

func unquote(value string) string {
	value = strings.TrimSpace(value)
	if n := len(value); n > 1 && strings.ContainsAny(value[:1], `"'`) && value[0] == value[n-1] {
		return value[1 : n-1]
	}
	return value
}

// isOff reports whether a value turns an option off. An option without a value is on.
func isOff(value string) bool {
	return slices.Contains([]string{"0", "off", "false"}, strings.ToLower(value))
}

// isInDataFolder reports whether a path is relative, and therefore in the data directory.
func isInDataFolder(value string) bool {
	return value == "" || !strings.HasPrefix(value, "/") && !strings.Contains(value, "..")
}

// hasOnlySets reports whether all statements in a value are SET statements.
func hasOnlySets(value string) bool {
	for statement := range strings.SplitSeq(value, ";") {
		first, _, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(statement, "\n", " ")), " ")
		if first != "" && !strings.EqualFold(first, "SET") {
			return false
		}
	}
	return true
}

// needsOnlyPassword reports whether an account that was created with a password can log in with the password alone.
func needsOnlyPassword(value string) bool {
	factors := strings.Split(value, ",")
	first := strings.TrimSpace(factors[0])
	isPassword := first == "*" || first == "caching_sha2_password" || first == "*:caching_sha2_password"
	return isPassword && !slices.ContainsFunc(factors[1:], func(f string) bool { return strings.TrimSpace(f) != "" })
}

// hasRoom reports whether a limit of connections leaves room for Torpor's own. The server itself rejects a value that
// is not a number.
func hasRoom(value string) bool {
	n, err := strconv.Atoi(value)
	return err != nil || n >= leastConnections
}

// isNamedTimeZone reports whether a time zone is neither an offset nor the system time zone.
func isNamedTimeZone(value string) bool {
	return value != "" && !strings.ContainsAny(value[:1], "+-") && !strings.EqualFold(value, "SYSTEM")
}

// isSafeFlushMethod reports whether the server flushes writes to the disk with a flush method.
func isSafeFlushMethod(value string) bool {
	return !slices.Contains([]string{"nosync", "littlesync"}, strings.ToLower(value))
}

// isEveryAddress reports whether the server listens on the address of its Pod.
func isEveryAddress(value string) bool { return slices.Contains([]string{"*", "0.0.0.0", "::"}, value) }

// keepsInnoDB reports whether a list of disabled storage engines does not contain InnoDB.
func keepsInnoDB(value string) bool {
	return !slices.ContainsFunc(strings.Split(value, ","), func(name string) bool {
		return strings.EqualFold(strings.TrimSpace(name), "InnoDB")
	})
}

// isSendableRowEvent reports whether the server can send row events of up to this size. The server itself rejects a
// value that is not a number.
func isSendableRowEvent(value string) bool {
	number, shift := strings.ToLower(value), 0
	for i, suffix := range []string{"k", "m", "g", "t", "p", "e"} {
		if before, found := strings.CutSuffix(number, suffix); found {
			number, shift = before, (i+1)*bitsOfSuffix
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return err != nil && !errors.Is(err, strconv.ErrRange) || err == nil && n <= largestRowEvent>>shift
}

// bitsOfSuffix is the binary logarithm of the factor between two size suffixes.
const bitsOfSuffix = 10

func isUnlimitedOrHasRoom(value string) bool { return value == "0" || hasRoom(value) }

func isNotZero(value string) bool { return value != "0" }

// normalizeSize converts a number with the suffix k to a number without a suffix.
func normalizeSize(value string) string {
	value = strings.ToLower(value)
	if n, err := strconv.Atoi(strings.TrimSuffix(value, "k")); err == nil && strings.HasSuffix(value, "k") {
		return strconv.Itoa(n << 10)
	}
	return value
}
