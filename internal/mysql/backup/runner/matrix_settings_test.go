// SPDX-License-Identifier: Apache-2.0

package runner_test

// serverSetting is a setting that a ConfigMap may contain, with boundary values.
type serverSetting struct {
	name   string
	values []string
}

// listServerSettings lists settings that change how sessions read and write, or how binary logs are written. It does
// not include innodb_file_per_table = OFF, with which a server refuses some tables of other servers, such as compressed
// ones. It omits values that the operator rejects, such as a binlog_row_event_max_size with which no replica can read.
func listServerSettings() []serverSetting {
	return []serverSetting{
		{"character_set_server", []string{"utf8mb4", "latin1", "utf8mb3", "ascii", "binary", "cp932", "utf16", "gb18030"}},
		{"sql_mode", []string{"''", "ANSI", "TRADITIONAL", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "PAD_CHAR_TO_FULL_LENGTH,REAL_AS_FLOAT,HIGH_NOT_PRECEDENCE,NO_AUTO_VALUE_ON_ZERO", "IGNORE_SPACE,NO_ZERO_DATE,NO_ZERO_IN_DATE,STRICT_ALL_TABLES", "ALLOW_INVALID_DATES,NO_UNSIGNED_SUBTRACTION"}},
		{"default_time_zone", []string{"'+14:00'", "'-13:59'", "SYSTEM"}},
		{"transaction_isolation", []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"}},
		{"autocommit", []string{"0", "1"}},
		{"completion_type", []string{"CHAIN", "RELEASE"}},
		{"max_allowed_packet", []string{"16M", "1G"}},
		{"net_buffer_length", []string{"1024", "1M"}},
		{"explicit_defaults_for_timestamp", []string{"OFF"}},
		{"innodb_strict_mode", []string{"OFF"}},
		{"innodb_default_row_format", []string{"redundant", "compact", "dynamic"}},
		{"sql_require_primary_key", []string{"ON"}},
		{"sql_generate_invisible_primary_key", []string{"ON"}},
		{"show_gipk_in_create_table_and_information_schema", []string{"OFF"}},
		{"restrict_fk_on_non_standard_key", []string{"ON", "OFF"}},
		{"binlog_row_image", []string{"minimal", "noblob", "full"}},
		{"binlog_row_metadata", []string{"FULL", "MINIMAL"}},
		{"binlog_row_value_options", []string{"PARTIAL_JSON"}},
		{"binlog_checksum", []string{"NONE", "CRC32"}},
		{"binlog_transaction_compression", []string{"ON", "OFF"}},
		{"binlog_rows_query_log_events", []string{"ON"}},
		{"binlog_row_event_max_size", []string{"256", "4294901760"}},
		{"max_binlog_size", []string{"4096", "1G"}},
		{"binlog_cache_size", []string{"4096"}},
		{"binlog_order_commits", []string{"OFF"}},
		{"binlog_transaction_dependency_history_size", []string{"1"}},
		{"log_bin_trust_function_creators", []string{"ON"}},
		{"binlog_stmt_cache_size", []string{"4096"}},
		{"wait_timeout", []string{"1", "31536000"}},
		{"interactive_timeout", []string{"1"}},
		{"net_read_timeout", []string{"1"}},
		{"net_write_timeout", []string{"1"}},
		{"connect_timeout", []string{"2"}},
		{"lock_wait_timeout", []string{"1"}},
		{"innodb_lock_wait_timeout", []string{"1"}},
		{"max_execution_time", []string{"1"}},
		{"max_join_size", []string{"1"}},
		{"max_error_count", []string{"0"}},
		{"max_sort_length", []string{"4"}},
		{"group_concat_max_len", []string{"4"}},
		{"div_precision_increment", []string{"0", "30"}},
		{"default_week_format", []string{"7"}},
		{"low_priority_updates", []string{"ON"}},
		{"local_infile", []string{"ON"}},
		{"event_scheduler", []string{"OFF", "DISABLED"}},
		{"general_log", []string{"ON"}},
		{"table_open_cache", []string{"1"}},
		{"innodb_autoinc_lock_mode", []string{"0", "1", "2"}},
		{"auto_increment_increment", []string{"65535"}},
		{"auto_increment_offset", []string{"65535"}},
		{"character_set_filesystem", []string{"utf8mb4"}},
		{"init_connect", []string{"'SET sql_select_limit = 1'", "'SET NAMES latin1'", "'SET sql_mode = \"ANSI_QUOTES\"'", "'SET autocommit = 0'"}},
		{"print_identified_with_as_hex", []string{"OFF", "ON"}},
		{"default_password_lifetime", []string{"65535", "1"}},
		{"password_history", []string{"4294967295"}},
		{"password_require_current", []string{"ON"}},
		{"activate_all_roles_on_login", []string{"ON"}},
		{"require_secure_transport", []string{"ON"}},
		{"tls_version", []string{"TLSv1.3"}},
		{"xa_detach_on_prepare", []string{"OFF"}},
		{"innodb_rollback_on_timeout", []string{"ON"}},
		{"cte_max_recursion_depth", []string{"0"}},
		{"max_points_in_geometry", []string{"3"}},
		{"regexp_time_limit", []string{"0"}},
		{"innodb_ft_min_token_size", []string{"0", "16"}},
		{"ngram_token_size", []string{"1", "10"}},
		{"innodb_ft_enable_stopword", []string{"OFF"}},
		{"lc_time_names", []string{"ja_JP"}},
		{"lc_messages", []string{"de_DE"}},
		{"default_tmp_storage_engine", []string{"MEMORY"}},
		{"internal_tmp_mem_storage_engine", []string{"MEMORY"}},
		{"big_tables", []string{"ON"}},
		{"flush", []string{"ON"}},
		{"old_alter_table", []string{"ON"}},
		{"updatable_views_with_limit", []string{"NO"}},
		{"concurrent_insert", []string{"NEVER"}},
		{"delay_key_write", []string{"ALL"}},
		{"max_sp_recursion_depth", []string{"0"}},
		{"max_prepared_stmt_count", []string{"100"}},
		{"max_seeks_for_key", []string{"1"}},
		{"optimizer_search_depth", []string{"0"}},
		{"optimizer_switch", []string{"'derived_merge=off,condition_fanout_filter=off'"}},
		{"block_encryption_mode", []string{"aes-256-cbc"}},
		{"slow_query_log", []string{"ON"}},
		{"log_output", []string{"TABLE", "NONE"}},
		{"session_track_gtids", []string{"ALL_GTIDS"}},
		{"session_track_schema", []string{"OFF"}},
		{"session_track_transaction_info", []string{"STATE"}},
		{"innodb_deadlock_detect", []string{"OFF"}},
		{"innodb_change_buffering", []string{"all"}},
		{"innodb_stats_on_metadata", []string{"ON"}},
		{"innodb_stats_persistent", []string{"OFF"}},
		{"innodb_table_locks", []string{"OFF"}},
		{"innodb_online_alter_log_max_size", []string{"65536"}},
		{"innodb_sort_buffer_size", []string{"65536"}},
		{"innodb_checksum_algorithm", []string{"strict_crc32"}},
		{"information_schema_stats_expiry", []string{"0", "31536000"}},
		{"innodb_ddl_threads", []string{"1"}},
		{"innodb_redo_log_archive_dirs", []string{"''"}},
		{"innodb_autoextend_increment", []string{"1"}},
		{"eq_range_index_dive_limit", []string{"0"}},
		{"range_optimizer_max_mem_size", []string{"1"}},
		{"bulk_insert_buffer_size", []string{"0"}},
		{"read_buffer_size", []string{"8192"}},
		{"sort_buffer_size", []string{"32768"}},
		{"join_buffer_size", []string{"128"}},
		{"thread_stack", []string{"1M"}},
		{"select_into_disk_sync", []string{"ON"}},
		{"replica_parallel_workers", []string{"0", "8"}},
		{"replica_preserve_commit_order", []string{"OFF"}},
		{"gtid_executed_compression_period", []string{"1"}},
		{"binlog_group_commit_sync_delay", []string{"1000"}},
		{"binlog_expire_logs_seconds", []string{"0"}},
	}
}

// settings returns random lines for my.cnf.
func (g *schemaGenerator) settings(most int) []string {
	all := listServerSettings()
	var lines []string
	chosen := map[string]bool{}
	for range g.IntN(most + 1) {
		s := pick(g, all...)
		if chosen[s.name] || len(s.values) == 0 {
			continue
		}
		chosen[s.name] = true
		line := s.name
		if value := pick(g, s.values...); value != "" {
			line += "=" + value
		}
		lines = append(lines, line)
		g.count("setting " + s.name)
	}
	return lines
}
