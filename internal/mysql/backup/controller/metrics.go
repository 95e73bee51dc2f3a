// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Metrics collects the last backup of every MySQLCluster directly from the cache. A cluster without a backup has no
// metrics. One instance exists for the lifetime of the process, and is registered once.
type Metrics struct {
	cache reconcile.ScrapedCache

	timestamp, elapsed, dumpBytes, binlogBytes, workDir, warnings *prometheus.Desc
}

// NewMetrics returns the metrics of this feature, with the names and help texts of upstream.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	return &Metrics{
		timestamp:   prometheus.NewDesc("moco_backup_timestamp", "The number of seconds since January 1, 1970 UTC of the last successful backup", labels, nil),
		elapsed:     prometheus.NewDesc("moco_backup_elapsed_seconds", "The number of seconds taken for the last backup", labels, nil),
		dumpBytes:   prometheus.NewDesc("moco_backup_dump_bytes", "The size of compressed full backup data", labels, nil),
		binlogBytes: prometheus.NewDesc("moco_backup_binlog_bytes", "The size of compressed binlog files", labels, nil),
		workDir:     prometheus.NewDesc("moco_backup_workdir_usage_bytes", "The maximum usage of the working directory; 0, because backups are streamed to the bucket", labels, nil),
		warnings:    prometheus.NewDesc("moco_backup_warnings", "The number of warnings in the last successful backup", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.timestamp, m.elapsed, m.dumpBytes, m.binlogBytes, m.workDir, m.warnings} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	var clusters mocov1beta2.MySQLClusterList
	if !m.cache.List(&clusters) {
		return
	}
	for i := range clusters.Items {
		m.collectCluster(ch, &clusters.Items[i])
	}
}

func (m *Metrics) collectCluster(ch chan<- prometheus.Metric, cluster *mocov1beta2.MySQLCluster) {
	b := cluster.Status.Backup
	if b.Time == nil {
		return
	}
	for _, gauge := range []struct {
		of    *prometheus.Desc
		value float64
	}{
		{m.timestamp, float64(b.Time.Unix())},
		{m.elapsed, b.Elapsed.Seconds()},
		{m.dumpBytes, float64(b.DumpSize)},
		{m.binlogBytes, float64(b.BinlogSize)},
		{m.workDir, float64(b.WorkDirUsage)},
		{m.warnings, float64(len(b.Warnings))},
	} {
		ch <- prometheus.MustNewConstMetric(gauge.of, prometheus.GaugeValue, gauge.value, cluster.Name, cluster.Namespace)
	}
}
