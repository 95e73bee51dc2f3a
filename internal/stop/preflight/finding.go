// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Severity is how serious a finding is.
type Severity string

// These are the severities of a finding.
const (
	// Blocking findings predict that the stop or the start will fail or have no effect.
	Blocking Severity = "blocking"
	// Warning findings predict costs or risks of a stop.
	Warning Severity = "warning"
)

// Finding is one problem of one stop. Its code identifies the kind of problem.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Objects are the first affected objects, and Count is the number of all affected objects.
	Objects []string `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Message states what was expected, what was found and what to do. It contains no times.
	Message string `json:"message"`
}

// catalogueEntry has the severity and the text of the findings with a code. A %s in the text is replaced with the
// affected objects.
type catalogueEntry struct {
	code     string
	severity Severity
	text     string
}

// catalogue returns the entries of all codes, the worst first.
func catalogue() []catalogueEntry {
	return []catalogueEntry{
		{torporv1alpha1.BeingDeletedFinding, Blocking, "Expected an object that is not being deleted, found a deletionTimestamp; Torpor does not change the object"},
		{torporv1alpha1.NoControllerFinding, Blocking, "Expected a controller that acts on the object, found that %s"},
		{torporv1alpha1.HibernationUnsupportedFinding, Blocking, "%s"},
		{torporv1alpha1.PausedFinding, Blocking, "Expected no pause, found the annotation %s, so nothing is stopped or started; remove the annotation"},
		{torporv1alpha1.StoppedBySlumberFinding, Blocking, "Expected no Slumber that stops the object, found %s, which keeps the object stopped"},
		{torporv1alpha1.StartRefusedFinding, Blocking, "Expected a start that the manager does not refuse, found: %s"},
		{torporv1alpha1.StopRefusedFinding, Blocking, "Expected a stop that the manager can carry out, found: %s"},
		{torporv1alpha1.UntilInvalidFinding, Blocking, "%s"},
		{torporv1alpha1.StopOutlastsCertificatesFinding, Blocking, "Expected the stop to end before status.hibernationCheck.wakeBy, when certificates of the API server or of the kubelets' signer expire, found a later end; choose an earlier end, or renew the certificates before the stop"},
		{torporv1alpha1.ClusterTooYoungFinding, Blocking, "Expected an OpenShift cluster that is at least a day old, because the signer of its kubelets' first certificates is replaced after a day, found a younger cluster; stop the cluster when it is a day old"},
		{torporv1alpha1.WebhookBlocksWakeUpFinding, Blocking, "Expected nodes and system Pods to start without an admission webhook whose own Pods are in the cluster, found %s; set failurePolicy to Ignore, or exclude kube-system, kube-node-lease and the namespace of these Pods in its namespaceSelector"},
		{torporv1alpha1.ClusterUpgradingFinding, Blocking, "Expected no upgrade in progress, found an upgrade of %s, which drains and restarts nodes one by one; stop the cluster when the upgrade has ended"},
		{torporv1alpha1.KarpenterReplacesNodesFinding, Blocking, "Expected machines that keep existing while they are off, found NodeClaims of Karpenter: %s; Karpenter terminates and replaces machines that stop: set the limits of Karpenter's NodePools to 0, and delete the NodeClaims"},
		{torporv1alpha1.CapacityReservationMissingFinding, Blocking, "Expected machines to run in the capacity reservation that they require, found machines outside of it: %s; these machines do not start again after a stop: let them target another reservation, or none"},
		{torporv1alpha1.WakeByNearFinding, Warning, "Expected certificates of the API server and of the kubelets' signer that are valid for more than three days, found one that expires sooner; keep the cluster running until the certificate is renewed, which must happen before status.hibernationCheck.wakeBy"},
		{torporv1alpha1.QuotaExceededFinding, Warning, "Expected quotas of the cloud that cover the running machines, found quotas whose use exceeds their limit: %s; after a stop, machines that count against these quotas may not start again: raise the limits before the stop"},
		{torporv1alpha1.SlumberGoesOnFinding, Warning, "Expected the object to start when the stop ends, found %s, which stops the object for longer; the object starts when both stops have ended"},
		{torporv1alpha1.EtcdQuorumSmallFinding, Warning, "Expected at least three nodes of the control plane, so that one may be lost, found only %s; back up etcd before the stop"},
		{torporv1alpha1.HealthCheckReplacesMachinesFinding, Warning, "Expected MachineHealthChecks to be paused, found %s, which replace machines whose nodes are not ready, for example when a resume begins; set the annotation " + PausedAnnotation + " on the health checks before the stop, and remove the annotation after the resume"},
		{torporv1alpha1.AutoscalerAddsMachinesFinding, Warning, "Expected no autoscaler that adds machines, found %s; machines are added for Pods that a drain evicts, or that wait for nodes at the resume: limit the autoscaler to the present number of machines"},
		{torporv1alpha1.VolumesNotDetachableFinding, Warning, "Expected volumes that can be detached, found the VolumeAttachments %s with a detach error; correct the cause of the error before the stop"},
		{torporv1alpha1.VolumesLocalFinding, Warning, "Expected volumes that do not depend on one machine, found volumes on local disks: %s; these volumes are lost if their machine is replaced while the cluster hibernates"},
		{torporv1alpha1.EvictionForbiddenFinding, Warning, "Expected PodDisruptionBudgets that allow a disruption, found budgets that allow none: %s; a stop of the machines ignores these budgets"},
		{torporv1alpha1.FinalizersPendingFinding, Warning, "Expected no namespace that is being deleted, found %s, whose finalizers wait for controllers of the cluster; the deletion continues after the resume"},
		{torporv1alpha1.CronJobsMissStartsFinding, Warning, "Expected CronJobs to miss at most 100 starts, found CronJobs that miss more: %s; after the resume, these CronJobs report TooManyMissedTimes and start once; before Kubernetes 1.21, they never start again: set startingDeadlineSeconds"},
		{torporv1alpha1.BackupDueFinding, Warning, "Expected no backup during the stop, found %s"},
		{torporv1alpha1.NotHealthyFinding, Warning, "Expected a healthy object before a stop, found: %s"},
		{torporv1alpha1.DeploymentUnderwayFinding, Warning, "Expected no deployment in progress, found %s; a stop ends the deployment"},
		{torporv1alpha1.NotCheckedFinding, Warning, "%s"},
	}
}

// Codes returns all codes, the worst first.
func Codes() []string {
	var codes []string
	for _, e := range catalogue() {
		codes = append(codes, e.code)
	}
	return codes
}

// NewFinding returns a finding with a code. objects are the first affected objects, and count is the number of all
// affected objects.
func NewFinding(code string, count int, objects ...string) Finding {
	entries := catalogue()
	entry := entries[slices.IndexFunc(entries, func(e catalogueEntry) bool { return e.code == code })]
	f := Finding{Code: code, Severity: entry.severity, Objects: objects, Count: count, Message: entry.text}
	if strings.Contains(entry.text, "%s") {
		f.Message = fmt.Sprintf(entry.text, joinObjects(objects, count))
	}
	return f
}

// NewRemark returns a finding about the object itself, without a list of objects. found replaces the %s in the text of
// the code.
func NewRemark(code, found string) Finding {
	f := NewFinding(code, 0, found)
	f.Objects = nil
	return f
}

func joinObjects(objects []string, count int) string {
	text := strings.Join(objects, ", ")
	switch more := count - len(objects); {
	case len(objects) == 0:
		return fmt.Sprintf("%d of them", count)
	case more > 0:
		return fmt.Sprintf("%s and %d more", text, more)
	default:
		return text
	}
}

// sortFindings sorts findings: the blocking findings first, and then in the order of the catalogue, the worst first.
func sortFindings(findings []Finding) []Finding {
	rank := map[string]int{}
	for i, e := range catalogue() {
		rank[e.code] = i
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(rank[a.Code], rank[b.Code])) // "blocking" is before "warning".
	})
	return findings
}

// HasBlocking reports whether a finding has the severity Blocking.
func HasBlocking(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Blocking })
}

// Join merges lists of findings, the worst first.
func Join(lists ...[]Finding) []Finding { return sortFindings(slices.Concat(lists...)) }
