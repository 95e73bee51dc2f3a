// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// AutoscalerStatusPath is the path of the ConfigMap to which the Cluster Autoscaler of Kubernetes writes its status.
// The autoscaler of OpenShift is detected by its MachineAutoscalers.
const AutoscalerStatusPath = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"

const (
	// autoscalerUpdatedAnnotation holds the time of the Cluster Autoscaler's last status update, as time.Time.String
	// formats it.
	autoscalerUpdatedAnnotation = "cluster-autoscaler.kubernetes.io/last-updated"
	autoscalerTimeFormat        = "2006-01-02 15:04:05.999999999 -0700 MST"
	// autoscalerAge is the age at which the status of the Cluster Autoscaler is ignored, because the autoscaler was
	// probably removed. It updates its status every ten seconds, or less often in a cluster without nodes that it may
	// scale.
	autoscalerAge = time.Hour
)

// PausedAnnotation pauses a MachineHealthCheck, regardless of its value.
const PausedAnnotation = "cluster.x-k8s.io/paused"

const (
	openShiftMachines      = "/apis/machine.openshift.io/v1beta1/"
	openShiftHealthChecks  = openShiftMachines + "machinehealthchecks"
	clusterAPIHealthChecks = "/apis/cluster.x-k8s.io/v1beta1/machinehealthchecks"
	nextHealthChecks       = "/apis/cluster.x-k8s.io/v1beta2/machinehealthchecks"
)

// HealthCheckPaths returns the Path of each SurveyList of MachineHealthChecks.
func HealthCheckPaths() []string { return []string{openShiftHealthChecks, clusterAPIHealthChecks} }

// machineLists returns the lists that reveal upgrades, and controllers that replace or add machines.
func machineLists() []SurveyList {
	const openShift = "/apis/config.openshift.io/v1/"
	checks, scalers := []string{torporv1alpha1.HealthCheckReplacesMachinesFinding}, []string{torporv1alpha1.AutoscalerAddsMachinesFinding}
	upgrades := []string{torporv1alpha1.ClusterUpgradingFinding}
	return []SurveyList{
		{Name: "ClusterVersions", Path: openShift + "clusterversions", isOfOpenShift: true, codes: upgrades, add: addClusterVersion},
		{Name: "MachineConfigPools", Path: "/apis/machineconfiguration.openshift.io/v1/machineconfigpools", isOfOpenShift: true, codes: upgrades, add: addMachineConfigPool},
		{Name: "MachineHealthChecks of OpenShift", Path: openShiftHealthChecks, isOfOpenShift: true, codes: checks, add: addHealthCheck},
		{Name: "MachineHealthChecks of Cluster API", Path: clusterAPIHealthChecks, NextPath: nextHealthChecks, codes: checks, add: addHealthCheck},
		{Name: "ClusterAutoscalers", Path: "/apis/autoscaling.openshift.io/v1/clusterautoscalers", isOfOpenShift: true, codes: scalers, add: addClusterAutoscaler},
		{Name: "MachineAutoscalers", Path: "/apis/autoscaling.openshift.io/v1beta1/machineautoscalers", isOfOpenShift: true, codes: scalers, add: addMachineAutoscaler},
		{Name: "NodePools of Karpenter", Path: "/apis/karpenter.sh/v1/nodepools", codes: scalers, add: addNodePool},
		{Name: "NodeClaims of Karpenter", Path: "/apis/karpenter.sh/v1/nodeclaims", codes: []string{torporv1alpha1.KarpenterReplacesNodesFinding}, add: addNodeClaim},
	}
}

// conditioned is an object with conditions.
type conditioned struct {
	Metadata objectName `json:"metadata"`
	Status   struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (c conditioned) isTrue(kind string) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == "True"
		}
	}
	return false
}

// addClusterVersion finds an upgrade of OpenShift in progress.
func addClusterVersion(s *Survey, item []byte) error {
	var v conditioned
	if err := decode(item, &v); err != nil {
		return err
	}
	if v.isTrue("Progressing") {
		s.note(torporv1alpha1.ClusterUpgradingFinding, "ClusterVersion/"+v.Metadata.Name, 0)
	}
	return nil
}

// addMachineConfigPool finds nodes that are being updated, which OpenShift drains and restarts one after the other.
func addMachineConfigPool(s *Survey, item []byte) error {
	var p conditioned
	if err := decode(item, &p); err != nil {
		return err
	}
	if p.isTrue("Updating") {
		s.note(torporv1alpha1.ClusterUpgradingFinding, "MachineConfigPool/"+p.Metadata.Name, 0)
	}
	return nil
}

// addHealthCheck finds MachineHealthChecks that replace machines. When a resume begins, the nodes have been
// Ready=Unknown since the machines stopped, so a MachineHealthCheck immediately considers them unhealthy.
func addHealthCheck(s *Survey, item []byte) error {
	var c struct {
		Metadata struct {
			objectName

			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec healthCheckSpec `json:"spec"`
	}
	if err := decode(item, &c); err != nil {
		return err
	}
	_, isPaused := c.Metadata.Annotations[PausedAnnotation]
	if !isPaused && !c.Spec.isNeverTriggered() && c.Metadata.DeletionTimestamp == nil {
		s.note(torporv1alpha1.HealthCheckReplacesMachinesFinding, c.Metadata.String(), 0)
	}
	return nil
}

// healthCheckSpec has the limits of a MachineHealthCheck. Version v1beta2 of Cluster API has renamed them. In all
// versions, a range takes precedence over a number.
type healthCheckSpec struct {
	MaxUnhealthy   any    `json:"maxUnhealthy"`
	UnhealthyRange string `json:"unhealthyRange"`
	Remediation    struct {
		TriggerIf struct {
			UnhealthyLessThanOrEqualTo any    `json:"unhealthyLessThanOrEqualTo"`
			UnhealthyInRange           string `json:"unhealthyInRange"`
		} `json:"triggerIf"`
	} `json:"remediation"`
}

func (s healthCheckSpec) isNeverTriggered() bool {
	next := s.Remediation.TriggerIf
	return s.UnhealthyRange == "" && next.UnhealthyInRange == "" && (isZero(s.MaxUnhealthy) || isZero(next.UnhealthyLessThanOrEqualTo))
}

// isZero reports whether a number or a percentage is zero. A MachineHealthCheck with this limit never replaces a
// machine.
func isZero(limit any) bool {
	switch limit := limit.(type) {
	case float64:
		return limit == 0
	case string:
		return strings.TrimSuffix(limit, "%") == "0"
	default:
		return false
	}
}

func addClusterAutoscaler(s *Survey, _ []byte) error {
	s.hasClusterAutoscaler = true
	return nil
}

// addMachineAutoscaler finds MachineAutoscalers, which add machines to MachineSets. They have no effect without a
// ClusterAutoscaler.
func addMachineAutoscaler(s *Survey, item []byte) error {
	if !s.hasClusterAutoscaler {
		return nil
	}
	return s.noteNamed(torporv1alpha1.AutoscalerAddsMachinesFinding, "MachineAutoscaler/", item)
}

func addNodePool(s *Survey, item []byte) error {
	return s.noteNamed(torporv1alpha1.AutoscalerAddsMachinesFinding, "NodePool/", item)
}

func addNodeClaim(s *Survey, item []byte) error {
	return s.noteNamed(torporv1alpha1.KarpenterReplacesNodesFinding, "", item)
}

// noteNamed adds an item to the finding with this code. The finding lists the item by the prefix, its namespace and its
// name.
func (s *Survey) noteNamed(code, prefix string, item []byte) error {
	var o struct {
		Metadata objectName `json:"metadata"`
	}
	if err := decode(item, &o); err != nil {
		return err
	}
	s.note(code, prefix+o.Metadata.String(), 0)
	return nil
}

// AddAutoscalerStatus evaluates the status of the Cluster Autoscaler. The status remains when the autoscaler is
// removed, so an old status is ignored.
func (s *Survey) AddAutoscalerStatus(item []byte) {
	var c struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if len(item) > MaxItemBytes || decode(item, &c) != nil {
		return
	}
	at, err := time.Parse(autoscalerTimeFormat, c.Metadata.Annotations[autoscalerUpdatedAnnotation])
	if err == nil && s.now.Sub(at) < autoscalerAge {
		s.note(torporv1alpha1.AutoscalerAddsMachinesFinding, "cluster-autoscaler", 0)
	}
}
