// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile = "../../../../config/monitoring/rules.yaml"
	interval  = time.Minute
	// healthy are the metrics of an active manager.
	healthy = `
		torpor_installation_acts{pod="a"} 1+0x3000
		torpor_installation_acts{pod="b"} 0+0x3000
		torpor_gate_state{group="hibernation",state="Running"} 1+0x3000
		torpor_gate_state{group="hibernation",state="Forbidden"} 0+0x3000
		torpor_webhook_certificate_expiry_timestamp_seconds 31536000+0x3000
		torpor_cloud_operations_total{account="x",operation="look",error=""} 0+6x3000
		torpor_cloud_operations_total{account="x",operation="look",error="throttled"} 0+1x3000`
)

// TestAlerts has rows with series in the notation of promtool's tests, one value a minute from time 0, and with the
// alerts that fire after the given time. Each alert has a row in which it fires.
func TestAlerts(t *testing.T) {
	t.Parallel()
	fired := map[string]bool{}
	for name, test := range map[string]struct {
		series string
		after  time.Duration
		want   []string
	}{
		"manager without problems: no alert fires": {healthy, 48 * time.Hour, nil},
		"planned stop of all objects for two hours: no alert fires": {healthy + `
			torpor_stop_since_timestamp_seconds{kind="ClusterDeployment",namespace="ns",name="x",part="machines"} 0+0x120 stale
			torpor_stop_until_timestamp_seconds{kind="ClusterDeployment",namespace="ns",name="x",part="machines"} 7200+0x120 stale
			torpor_stop_until_timestamp_seconds{kind="CFApp",namespace="ns",name="x",part="app"} 7200+0x120 stale
			torpor_stop_until_timestamp_seconds{kind="MySQLCluster",namespace="ns",name="x",part="clustering"} 7200+0x122 stale
			torpor_cluster_power_state{namespace="ns",name="x",power_state="Hibernating"} 1+0x120 stale
			torpor_cluster_wake_by_timestamp_seconds{namespace="ns",name="x"} 2592000+0x180
			moco_cluster_clustering_stopped{namespace="ns",name="x"} 1+0x120 0+0x60
			moco_cluster_available{namespace="ns",name="x"} 1+0x180
			moco_cluster_healthy{namespace="ns",name="x"} 0+0x180
			moco_backup_timestamp{namespace="ns",name="x"} 0+0x180`, 3 * time.Hour, nil},
		"stop still in effect four minutes after its end: no alert fires yet": {healthy + `
			torpor_stop_until_timestamp_seconds{kind="CFApp",namespace="ns",name="x",part="app"} 7200+0x124`, 124 * time.Minute, nil},
		"stop still in effect six minutes after its end, exported by two Pods: one alert fires": {healthy + `
			torpor_stop_until_timestamp_seconds{kind="CFApp",namespace="ns",name="x",part="app",pod="a"} 7200+0x126
			torpor_stop_until_timestamp_seconds{kind="CFApp",namespace="ns",name="x",part="app",pod="b"} 7200+0x126
			torpor_stop_until_timestamp_seconds{kind="CFApp",namespace="ns",name="other",part="app"} 90000+0x126`, 126 * time.Minute, []string{`TorporStopOverdue{kind="CFApp", name="x", namespace="ns", part="app", severity="warning"}`}},
		"hibernating cluster whose certificates expire in ten days: one alert fires": {healthy + `
			torpor_cluster_power_state{namespace="ns",name="x",power_state="Hibernating"} 1+0x60
			torpor_cluster_power_state{namespace="ns",name="runs",power_state="Running"} 1+0x60
			torpor_cluster_wake_by_timestamp_seconds{namespace="ns",name="x"} 864000+0x60
			torpor_cluster_wake_by_timestamp_seconds{namespace="ns",name="runs"} 864000+0x60`, time.Hour, []string{`TorporWakeBySoon{name="x", namespace="ns", severity="warning"}`}},
		"database with stopped clustering and an old backup: one alert fires": {healthy + `
			moco_backup_timestamp{namespace="ns",name="x"} 0+0x3000
			moco_backup_timestamp{namespace="ns",name="runs"} 0+0x3000
			moco_cluster_clustering_stopped{namespace="ns",name="x"} 1+0x3000
			moco_cluster_reconciliation_stopped{namespace="ns",name="x"} 1+0x3000
			moco_cluster_clustering_stopped{namespace="ns",name="runs"} 0+0x3000
			moco_cluster_reconciliation_stopped{namespace="ns",name="runs"} 0+0x3000`, 49 * time.Hour, []string{`TorporBackupOldWhileStopped{name="x", namespace="ns", severity="warning"}`}},
		"cluster both stalled and degraded for an hour: one alert fires": {healthy + `
			torpor_cluster_trouble{namespace="ns",name="x",condition="Stalled"} 1+0x60
			torpor_cluster_trouble{namespace="ns",name="x",condition="Degraded"} 1+0x60`, time.Hour, []string{`TorporClusterStalled{name="x", namespace="ns", severity="warning"}`}},
		"Slumber stalled for an hour, exported by two Pods: one alert fires": {healthy + `
			torpor_slumber_stalled{namespace="ns",name="nights",pod="a"} 1+0x60
			torpor_slumber_stalled{namespace="ns",name="nights",pod="b"} 1+0x60
			torpor_slumber_stalled{namespace="ns",name="weekends"} 0+0x60`, time.Hour, []string{`TorporSlumberStalled{name="nights", namespace="ns", severity="warning"}`}},
		"Slumber stalled for four minutes: no alert fires": {healthy + `
			torpor_slumber_stalled{namespace="ns",name="nights"} 0+0x56 1+0x4`, time.Hour, nil},
		"database without a writable primary: one alert fires": {healthy + `
			moco_cluster_available{namespace="ns",name="x"} 0+0x60`, time.Hour, []string{`TorporMySQLNotAvailable{name="x", namespace="ns", severity="critical"}`}},
		"database that a Slumber stops: no alert fires": {healthy + `
			moco_cluster_available{namespace="ns",name="x"} 0+0x60
			torpor_mysql_state{namespace="ns",name="x",state="Offline"} 1+0x60`, time.Hour, nil},
		"no manager active for five minutes: an alert fires": {"torpor_installation_acts 1+0x10 0+0x20", 17 * time.Minute, []string{`TorporDoesNotAct{severity="critical"}`}},
		"no manager that exports metrics: an alert fires":    {"torpor_installation_acts 1+0x10 stale", 17 * time.Minute, []string{`TorporDoesNotAct{severity="critical"}`}},
		"rollout of the manager: no alert fires":             {"torpor_installation_acts 1+0x10 _x3 1+0x20", 16 * time.Minute, nil},
		"group of controllers that lacks a right: an alert fires": {healthy + `
			torpor_gate_state{group="sync",state="Forbidden"} 1+0x60`, time.Hour, []string{`TorporGroupForbidden{group="sync", severity="warning"}`}},
		"cloud account whose requests fail: an alert fires": {healthy + `
			torpor_cloud_operations_total{account="y",operation="look",error=""} 0+1x60
			torpor_cloud_operations_total{account="y",operation="look",error="credentials"} 0+5x60`, time.Hour, []string{`TorporCloudFails{account="y", severity="warning"}`}},
		"webhook certificate that is not renewed: an alert fires":                      {"torpor_installation_acts 1+0x60\ntorpor_webhook_certificate_expiry_timestamp_seconds 432000+0x60", time.Hour, []string{`TorporWebhookCertificateExpires{severity="warning"}`}},
		"hub without the webhook for apps: no alert about a webhook certificate fires": {"torpor_installation_acts 1+0x60\ntorpor_webhook_certificate_expiry_timestamp_seconds 0+0x60", time.Hour, nil},
	} {
		for _, alert := range test.want {
			alert, _, _ = strings.Cut(alert, "{")
			fired[alert] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, listFiring(t, test.series, test.after)); diff != "" {
				t.Errorf("alerts (-want +found):\n%s", diff)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(readAlerts(t))) {
		if !fired[name] {
			t.Errorf("expected a row in which %s fires, found none", name)
		}
	}
}

// ruleGroups are the groups of a PrometheusRule.
type ruleGroups struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func readRules(t *testing.T) ruleGroups {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec ruleGroups `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object.Spec
}

func readAlerts(t *testing.T) map[string]bool {
	t.Helper()
	alerts := map[string]bool{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			alerts[r.Alert] = true
		}
	}
	return alerts
}

// listFiring evaluates the rules each minute, as Prometheus does, and returns the alerts that fire at the
// end.
func listFiring(t *testing.T, series string, after time.Duration) []string {
	t.Helper()
	text, err := yaml.Marshal(readRules(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promQL := parser.NewParser(parser.Options{})
	loader, err := promqltest.NewLazyLoader("load 1m\n"+strings.TrimSpace(series), promqltest.LazyLoaderOpts{Parser: promQL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = loader.Close() }()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()), AppendableV2: loader.Storage(), Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(), Parser: promQL,
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	begin := time.Unix(0, 0).UTC()
	// No rule waits longer than a quarter of an hour, so the last 40 minutes decide which alerts fire.
	for at := max(0, after-40*time.Minute); at <= after; at += interval {
		now := begin.Add(at)
		loader.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				g.Eval(t.Context(), now)
			}
		})
	}
	var firing []string
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			if err := r.LastError(); err != nil {
				t.Errorf("%s: %v", r.Name(), err)
			}
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					firing = append(firing, fmt.Sprint(r.Name(), a.Labels.MatchLabels(false, labels.AlertName)))
				}
			}
		}
	}
	slices.Sort(firing)
	return firing
}
