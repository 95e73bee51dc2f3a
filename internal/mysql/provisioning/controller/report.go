// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	// version is the value of status.reconcileInfo.reconcileVersion. It is incremented when a change of Torpor makes
	// the same spec result in different objects.
	version = 1
	// userRetry is the retry interval for problems that only a user can fix, and for a ConfigMap that may not be
	// watched.
	userRetry = time.Minute
	// secretRetry is the delay before a Secret is read after it was applied.
	secretRetry = time.Second
	// renewalInterval is the maximum time between two checks of a certificate.
	renewalInterval = 12 * time.Hour
)

// These are the actions of events.
const (
	rolloutAction   = "Rollout"
	reconcileAction = "Reconcile"
)

// report writes the result of a pass into the status. It changes only the fields that this controller owns.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen observation, changes provisioning.ChangeSet, refused *reconcile.RefusedError) reconcile.FollowUp {
	conditions := map[string]decision.Condition{}
	if isRead := seen.Desired.ConfigMapName != ""; isRead || meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.SpecFullySupportedCondition) == nil {
		conditions[mocov1beta2.SpecFullySupportedCondition] = specSupport(cluster, changes.OverruledSettings)
	}
	active := decision.True(mocov1beta2.ReconciliationActiveReason, "")
	out := reconcile.FollowUp{Rule: changes.Rollout.Rule, RequeueAfter: changes.Rollout.RequeueAfter}
	if changes.Rollout.EndsTurn || cluster.ReconciliationStopped() {
		c.turns.giveBack(client.ObjectKeyFromObject(cluster))
	}
	now := c.Clock.Now()
	switches := mysqlswitches.Read(cluster, now)
	switched := switches.Reconciliation
	if changes.EndsStop && refused == nil {
		cluster.Status.ReconciliationStops = switched.End(now)
		cluster.Status.Pause = stopRecord(cluster, switched, now)
		return reconcile.FollowUp{Rule: "the stop has expired", RequeueAfter: reconcile.StaleCacheRetry, Events: []decision.Event{switched.EndEvent(reconcileAction, "")}}
	}
	cluster.Status.ReconciliationStops, cluster.Status.Pause = switched.AnnounceEnd(), stopRecord(cluster, switched, now)
	switch next := switches.NextEnd(); {
	case changes.EndsStop:
		out.Events, out.RequeueAfter = append(out.Events, switched.EndEvent(reconcileAction, describeFailure(refused))), userRetry
	case switched.IsOverdue:
		out.RequeueAfter, out.IsUrgent = reconcile.StaleCacheRetry, true
	case cluster.ReconciliationStopped() && !next.IsZero():
		out.RequeueAfter = reconcile.DelayUntil(next, now)
	}
	if cluster.ReconciliationStopped() {
		active = decision.False(mocov1beta2.ReconciliationInactiveReason, describeStop(cluster, *cluster.Status.Pause.Reconciliation))
		maps.Copy(conditions, unknownConditions(cluster, active.Message))
	} else {
		maps.Copy(conditions, c.reportObjects(cluster, seen, changes, refused, &out))
		reportOffline(cluster, seen, changes, now, &out)
	}
	var ignored []decision.Event
	conditions[mocov1beta2.ReconciliationActiveCondition], ignored = withIgnoredAnnotations(cluster, active)
	out.Events = slices.Concat(switched.Events(reconcileAction), ignored, out.Events)
	out.Changes = switched.Changes("reconciliation")
	out.AfterSave = func() { c.Metrics.countStep(client.ObjectKeyFromObject(cluster), out, now) }
	reconcile.SetConditions(&cluster.Status.Conditions, conditions, cluster.Generation, c.Clock)
	return out
}

// reportObjects returns the conditions about the objects and their Pods.
func (c Controller) reportObjects(
	cluster *mocov1beta2.MySQLCluster, seen observation, changes provisioning.ChangeSet, refused *reconcile.RefusedError, out *reconcile.FollowUp,
) map[string]decision.Condition {
	success := decision.True(mocov1beta2.ReconcileSuccessReason, "")
	switch {
	case refused != nil:
		success = decision.False(mocov1beta2.ReconcileFailedReason, describeFailure(refused))
		out.RequeueAfter, out.Rule = userRetry, "required object missing or write refused"
	default:
		cluster.Status.ReconcileInfo = mocov1beta2.ReconcileInfo{Generation: cluster.Generation, ReconcileVersion: version}
		out.Events = rolloutEvents(changes)
	}
	if n := cluster.InstanceCount(); refused == nil && n > int(cluster.Spec.Replicas) {
		success = decision.False(mocov1beta2.ReconcileFailedReason, fmt.Sprintf("spec.replicas: expected at least %d, because instances cannot be "+
			"removed, found %d; all instances keep running; revert the change, create a new MySQLCluster, or set spec.offline", n, cluster.Spec.Replicas))
	}
	if settingsConfigMapName(cluster) != "" {
		out.RequeueAfter = cmp.Or(out.RequeueAfter, userRetry)
	}
	// Secrets are not watched, so there is no event when the applied Secret exists.
	if refused == nil && slices.ContainsFunc(changes.Apply, isSecret) {
		out.RequeueAfter = secretRetry
	}
	out.RequeueAfter = cmp.Or(out.RequeueAfter, renewalInterval)
	return map[string]decision.Condition{
		mocov1beta2.ReconcileSuccessCondition: success, mocov1beta2.StatefulSetReadyCondition: statefulSetReadiness(seen, changes),
	}
}

// reportOffline reports the time since which an offline cluster has had no Pods. It requeues when a Slumber's stop
// expires.
func reportOffline(cluster *mocov1beta2.MySQLCluster, seen observation, changes provisioning.ChangeSet, now time.Time, out *reconcile.FollowUp) {
	hasPods := slices.ContainsFunc(seen.pods, func(p *corev1.Pod) bool { return p != nil })
	switch isApplied := seen.Err == nil && len(seen.Problems) == 0 && len(changes.Apply) == 0 && seen.StatefulSet != nil; {
	case !seen.Cluster.Spec.Offline || hasPods:
		cluster.Status.OfflineSince = nil
	case isApplied && cluster.Status.OfflineSince == nil:
		cluster.Status.OfflineSince = new(metav1.NewTime(now))
	}
	if end := stoprecord.ScheduledEnd(cluster.Status.ScheduledStops, cluster.Annotations, now); !end.IsZero() {
		out.RequeueAfter = min(out.RequeueAfter, end.Sub(now))
	}
}

// describeFailure returns a stable description of the errors, without secrets.
func describeFailure(refused *reconcile.RefusedError) string {
	failed, ok := errors.AsType[*applyError](refused.Err)
	if !ok {
		return refused.Message
	}
	return joinProblems(failed.problems, failed.err)
}

func joinProblems(problems []string, err error) string {
	all := slices.Clone(problems)
	if reason := k8serrors.ReasonForError(err); reason != "" {
		all = append(all, "the API server returned "+string(reason))
	} else if err != nil {
		all = append(all, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	// The message must not depend on the order of the errors.
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// withIgnoredAnnotations adds the ignored annotations to a condition, and returns an event when they change.
func withIgnoredAnnotations(cluster *mocov1beta2.MySQLCluster, active decision.Condition) (decision.Condition, []decision.Event) {
	ignored := describeIgnoredAnnotations(cluster)
	if ignored == "" {
		return active, nil
	}
	active.Message = strings.TrimPrefix(active.Message+"; "+ignored, "; ")
	old := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ReconciliationActiveCondition)
	if old != nil && strings.HasSuffix(old.Message, ignored) {
		return active, nil
	}
	return active, []decision.Event{{Warning: true, Reason: annotationIgnored, Action: reconcileAction, Note: ignored}}
}

// unknownConditions returns Unknown for StatefulSetReady and ReconcileSuccess if they are missing. Existing conditions
// keep their values.
func unknownConditions(cluster *mocov1beta2.MySQLCluster, message string) map[string]decision.Condition {
	unknown := map[string]decision.Condition{}
	for _, kind := range []string{mocov1beta2.StatefulSetReadyCondition, mocov1beta2.ReconcileSuccessCondition} {
		if meta.FindStatusCondition(cluster.Status.Conditions, kind) == nil {
			unknown[kind] = decision.Unknown(mocov1beta2.ReconciliationInactiveReason, message)
		}
	}
	return unknown
}

func isSecret(obj *unstructured.Unstructured) bool { return obj.GetKind() == "Secret" }

func statefulSetReadiness(seen observation, changes provisioning.ChangeSet) decision.Condition {
	switch {
	case seen.StatefulSet == nil:
		return decision.False(mocov1beta2.StatefulSetNotFoundReason, "there is no StatefulSet yet")
	case changes.Rollout.Done && len(changes.Apply) == 0:
		return decision.True(mocov1beta2.StatefulSetReadyReason, withForce(seen, seen.Rollout.DescribeKeptPods()))
	}
	message := changes.Rollout.Message
	if waiting := describeWaitingContainer(seen.pods); waiting != "" {
		message = strings.TrimPrefix(message+"; "+waiting, "; ")
	}
	return decision.False(mocov1beta2.StatefulSetNotReadyReason, withForce(seen, message))
}

// describeWaitingContainer describes the first container whose image cannot be pulled or that cannot be created. The
// text does not include the kubelet's message, which changes with each attempt.
func describeWaitingContainer(pods []*corev1.Pod) string {
	for _, p := range pods {
		if p == nil || !p.DeletionTimestamp.IsZero() {
			continue
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if c.State.Waiting == nil {
				continue
			}
			switch reason := c.State.Waiting.Reason; reason {
			case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable":
				return fmt.Sprintf("Pod %s: the image %s of the %s container cannot be pulled; correct the image or its registry's Secret", p.Name, c.Image, c.Name)
			case "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return fmt.Sprintf("Pod %s: the %s container cannot be created (%s); see kubectl describe pod -n %s %s", p.Name, c.Name, reason, p.Namespace, p.Name)
			}
		}
	}
	return ""
}

// withForce adds to a message that rollouts do not wait for a healthy cluster, if the annotation forces them.
func withForce(seen observation, message string) string {
	if !seen.Rollout.Forced {
		return message
	}
	return strings.TrimPrefix(message+"; rollouts do not wait for a healthy cluster: remove the annotation "+mocov1beta2.ForceRolloutAnnotation+
		" once the cluster is healthy", "; ")
}

// specSupport returns the condition SpecFullySupported, whose message lists the fields and settings without effect.
func specSupport(cluster *mocov1beta2.MySQLCluster, overruled []string) decision.Condition {
	var ignored []string
	if fields := mocov1beta2.UnsupportedFields(cluster.Spec); len(fields) > 0 {
		ignored = append(ignored, "these fields are stored but have no effect: "+strings.Join(fields, ", "))
	}
	if len(overruled) > 0 {
		ignored = append(ignored, fmt.Sprintf("these settings of the ConfigMap %s have no effect, because clustering requires other values: %s",
			settingsConfigMapName(cluster), strings.Join(overruled, ", ")))
	}
	if len(ignored) > 0 {
		return decision.False(mocov1beta2.FieldsIgnoredReason, strings.Join(ignored, "; "))
	}
	return decision.True(mocov1beta2.FullySupportedReason, "")
}

func rolloutEvents(changes provisioning.ChangeSet) []decision.Event {
	if !changes.RollsOut() {
		return nil
	}
	switch changes.Rollout.Action.(type) {
	case provisioning.Nothing:
	case provisioning.ReplacePod:
		if changes.Rollout.Forced {
			return []decision.Event{{Warning: true, Reason: rolloutForced, Action: rolloutAction, Note: changes.Rollout.Message}}
		}
		return []decision.Event{{Reason: podReplaced, Action: rolloutAction, Note: changes.Rollout.Message}}
	case provisioning.RequestSwitchover:
		return []decision.Event{{Reason: switchoverRequested, Action: rolloutAction, Note: changes.Rollout.Message}}
	}
	return nil
}

// stopValue is the only annotation value that requests a stop or forces a rollout.
const stopValue = "true"

// describeIgnoredAnnotations lists the annotations that have no effect because of their values.
func describeIgnoredAnnotations(cluster *mocov1beta2.MySQLCluster) string {
	var wrong []string
	for _, name := range []string{mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.ForceRolloutAnnotation} {
		if value, asked := cluster.Annotations[name]; asked && value != stopValue {
			wrong = append(wrong, fmt.Sprintf("the annotation %s is ignored: expected %q, found %.40q; correct or remove it", name, stopValue, value))
		}
	}
	return strings.Join(wrong, "; ")
}

// stopRecord returns status.pause with the current stop of reconciliation. It does not change the other fields of
// status.pause, which the clustering controller owns.
func stopRecord(cluster *mocov1beta2.MySQLCluster, switched mysqlswitches.Switch, now time.Time) *mocov1beta2.Pause {
	p, before := &mocov1beta2.Pause{}, cluster.Status.Pause
	if before != nil {
		*p = *before
		p.Reconciliation = nil
	}
	if asked := switched.Records.RequestedStop(); asked != nil {
		p.Reconciliation = &mocov1beta2.Stop{Since: metav1.NewTime(now), By: asked.By, Reason: asked.Reason, Until: asked.Until}
		if before != nil && before.Reconciliation != nil {
			p.Reconciliation.Since = before.Reconciliation.Since
		}
	}
	if p.Clustering == nil && p.Reconciliation == nil {
		return nil
	}
	return p
}

// describeStop describes the requester, the reason and the end of a stop of reconciliation.
func describeStop(cluster *mocov1beta2.MySQLCluster, s mocov1beta2.Stop) string {
	text := "reconciliation is stopped"
	if s.By != "" {
		text += " by " + s.By
	}
	if s.Until != nil {
		text += " until " + s.Until.UTC().Format(time.RFC3339)
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text + "; changes to the spec are not applied and no Pod is replaced; to continue, run: kubectl moco start reconciliation " + cluster.Name
}

// rememberStop returns the status fields about stops that MOCO's schema drops.
func rememberStop(cluster *mocov1beta2.MySQLCluster) map[string]any {
	remembered := map[string]any{}
	if p := cluster.Status.Pause; p != nil && p.Reconciliation != nil {
		remembered["pause"] = mocov1beta2.Pause{Reconciliation: p.Reconciliation}
	}
	if len(cluster.Status.ReconciliationStops) > 0 {
		remembered["reconciliationStops"] = cluster.Status.ReconciliationStops
	}
	if cluster.Status.OfflineSince != nil { // A Slumber waits for this field.
		remembered["offlineSince"] = cluster.Status.OfflineSince
	}
	return remembered
}
