// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// TestControllersOfMachines has the objects of a cluster, by the path of their list, and the expected findings.
func TestControllersOfMachines(t *testing.T) {
	const (
		versions, pools = "/apis/config.openshift.io/v1/clusterversions", "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
		openShiftChecks = "/apis/machine.openshift.io/v1beta1/machinehealthchecks"
		capiChecks      = "/apis/cluster.x-k8s.io/v1beta1/machinehealthchecks"
		nextCAPIChecks  = "/apis/cluster.x-k8s.io/v1beta2/machinehealthchecks"
		scalers         = "/apis/autoscaling.openshift.io/v1/clusterautoscalers"
		machineScalers  = "/apis/autoscaling.openshift.io/v1beta1/machineautoscalers"
		nodePools       = "/apis/karpenter.sh/v1/nodepools"
		nodeClaims      = "/apis/karpenter.sh/v1/nodeclaims"

		scaler        = `{"metadata":{"name":"default"}}`
		machineScaler = `{"metadata":{"namespace":"machines","name":"worker-a"},"spec":{"maxReplicas":12}}`
	)
	progressing := func(kind, status string) string {
		return fmt.Sprintf(`{"metadata":{"name":"x"},"status":{"conditions":[{"type":"Available","status":"True"},{"type":%q,"status":%q}]}}`, kind, status)
	}
	check := func(annotations, limit string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"m","name":"workers","annotations":{%s}},"spec":{"maxUnhealthy":%s}}`, annotations, limit)
	}
	nextCheck := func(trigger string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"m","name":"workers"},"spec":{"remediation":{"triggerIf":%s}}}`, trigger)
	}
	finding := func(code string, objects ...string) []torporv1alpha1.StopFinding {
		f := torporv1alpha1.StopFinding{Code: code, Objects: objects}
		for range objects {
			f.Count++
		}
		return []torporv1alpha1.StopFinding{f}
	}
	type items map[string][]string
	for name, row := range map[string]struct {
		found items
		want  []torporv1alpha1.StopFinding
	}{
		"upgrade of OpenShift: a finding":                       {items{versions: {progressing("Progressing", "True")}}, finding(torporv1alpha1.ClusterUpgradingFinding, "ClusterVersion/x")},
		"OpenShift cluster without an upgrade: no finding":      {items{versions: {progressing("Progressing", "False")}, pools: {progressing("Updating", "False")}}, nil},
		"condition Progressing with status Unknown: no finding": {items{versions: {progressing("Progressing", "Unknown")}}, nil},
		"nodes that are being updated: a finding":               {items{pools: {progressing("Updating", "True")}}, finding(torporv1alpha1.ClusterUpgradingFinding, "MachineConfigPool/x")},
		"MachineHealthCheck of OpenShift: a finding":            {items{openShiftChecks: {check("", `"40%"`)}}, finding(torporv1alpha1.HealthCheckReplacesMachinesFinding, "m/workers")},
		"MachineHealthCheck of Cluster API: a finding":          {items{capiChecks: {check("", "null")}}, finding(torporv1alpha1.HealthCheckReplacesMachinesFinding, "m/workers")},
		"paused MachineHealthCheck: no finding":                 {items{openShiftChecks: {check(`"cluster.x-k8s.io/paused":""`, `"40%"`)}}, nil},
		"MachineHealthCheck with a limit of zero: no finding":   {items{openShiftChecks: {check("", "0"), check("", `"0%"`), check("", `"0"`)}}, nil},
		"MachineHealthCheck of Cluster API v1beta2: a finding": {
			items{nextCAPIChecks: {nextCheck(`{"unhealthyLessThanOrEqualTo":"40%"}`)}}, finding(torporv1alpha1.HealthCheckReplacesMachinesFinding, "m/workers"),
		},
		"MachineHealthCheck of Cluster API v1beta2 with a limit of zero: no finding": {items{nextCAPIChecks: {nextCheck(`{"unhealthyLessThanOrEqualTo":0}`)}}, nil},
		"MachineHealthCheck with a range, which takes precedence over a limit of zero: a finding": {
			items{nextCAPIChecks: {nextCheck(`{"unhealthyLessThanOrEqualTo":0,"unhealthyInRange":"[1-9]"}`)}}, finding(torporv1alpha1.HealthCheckReplacesMachinesFinding, "m/workers"),
		},
		"MachineAutoscaler with a ClusterAutoscaler: a finding": {items{scalers: {scaler}, machineScalers: {machineScaler}}, finding(torporv1alpha1.AutoscalerAddsMachinesFinding, "MachineAutoscaler/machines/worker-a")},
		"only a ClusterAutoscaler: no finding":                  {items{scalers: {scaler}}, nil},
		"only a MachineAutoscaler: no finding":                  {items{machineScalers: {machineScaler}}, nil},
		"NodePool of Karpenter: a finding":                      {items{nodePools: {`{"metadata":{"name":"default"}}`}}, finding(torporv1alpha1.AutoscalerAddsMachinesFinding, "NodePool/default")},
		"NodeClaim of Karpenter: a finding": {
			items{nodeClaims: {`{"metadata":{"name":"a"}}`, `{"metadata":{"name":"b"}}`}}, finding(torporv1alpha1.KarpenterReplacesNodesFinding, "a", "b"),
		},
		"malformed objects: no finding": {items{versions: {`{"status":{"conditions":"all"}}`}, openShiftChecks: {`[]`}, nodeClaims: {`1`}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, read := NewSurvey(fixedTime()), 0
			for _, l := range Lists() {
				for _, path := range l.Paths() {
					for _, item := range row.found[path] {
						s.AddItem(l, []byte(item))
						read++
					}
				}
			}
			if read == 0 {
				t.Fatal("expected a list for the objects, found none")
			}
			if diff := cmp.Diff(row.want, s.BuildCheck(nil).Findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheClusterAutoscalerIsFoundByItsStatus has the status ConfigMap of the Cluster Autoscaler with recent, old and
// malformed times.
func TestTheClusterAutoscalerIsFoundByItsStatus(t *testing.T) {
	status := func(at string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/last-updated":%q}}}`, at)
	}
	for text, want := range map[string]int{
		status(fixedTime().Add(-time.Minute).Format("2006-01-02 15:04:05.999999999 -0700 MST")): 1,
		status(fixedTime().Add(-time.Minute).Add(3).String()):                                   1,
		status(fixedTime().Add(-2 * time.Hour).String()):                                        0,
		status("soon"): 0, `{}`: 0, `[]`: 0,
	} {
		s := NewSurvey(fixedTime())
		s.AddAutoscalerStatus([]byte(text))
		if got := s.BuildCheck(nil).Findings; len(got) != want || want > 0 && got[0].Code != torporv1alpha1.AutoscalerAddsMachinesFinding {
			t.Errorf("%s: expected %d findings, found %+v", text, want, got)
		}
	}
}

// TestListsOfOpenShiftAreReadThereOnly expects the lists of OpenShift to be skipped on other clusters, and to be
// read if the namespaces of the cluster are unknown.
func TestListsOfOpenShiftAreReadThereOnly(t *testing.T) {
	skipped := func(s *Survey) (names []string) {
		for _, l := range Lists() {
			if s.Skips(l) {
				names = append(names, l.Name)
			}
		}
		return names
	}
	plain, openShift, unknown := NewSurvey(fixedTime()), NewSurvey(fixedTime()), NewSurvey(fixedTime())
	namespaces := listNamed(t, "namespaces")
	openShift.AddItem(namespaces, []byte(`{"metadata":{"name":"openshift-cluster-version"}}`))
	unknown.SkipList(namespaces)
	want := []string{"ClusterVersions", "MachineConfigPools", "MachineHealthChecks of OpenShift", "ClusterAutoscalers", "MachineAutoscalers"}
	if diff := cmp.Diff([][]string{want, nil, nil}, [][]string{skipped(plain), skipped(openShift), skipped(unknown)}); diff != "" {
		t.Errorf("lists that are not read: plain, OpenShift, unknown (-want +got):\n%s", diff)
	}
	at := slices.IndexFunc(Lists(), func(l SurveyList) bool { return l.Name == namespaces.Name })
	for i, l := range Lists() {
		if l.isOfOpenShift && i < at {
			t.Errorf("%s: expected a list after that of the namespaces, found it before", l.Name)
		}
		if l.isOfOpenShift != strings.Contains(l.Path, "openshift.io") {
			t.Errorf("%s: expected a list of OpenShift for an API group of OpenShift, found %t", l.Path, l.isOfOpenShift)
		}
	}
}
