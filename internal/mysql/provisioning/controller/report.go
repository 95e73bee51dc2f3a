// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// version of the reconciler, for status.reconcileInfo: it grows when the same spec leads to other objects.
const version = 1

// What was tried, as events say it.
const (
	rolloutAction   = "Rollout"
	reconcileAction = "Reconcile"
)

// report writes what became of a pass into the status. Only the fields that this controller owns are touched.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen *observation, w changeSet) (reconcile.Outcome, error) {
	out := reconcile.Outcome{After: w.rollout.RequeueAfter, Why: w.rollout.Rule}
	active := metav1.Condition{Status: metav1.ConditionTrue, Reason: mocov1beta2.ReconciliationActiveReason}
	out.Events = append(out.Events, c.reportActive(cluster, active)...)
	success := metav1.Condition{
		Type: mocov1beta2.ReconcileSuccessCondition, Status: metav1.ConditionTrue, Reason: mocov1beta2.ReconcileSuccessReason,
	}
	if len(w.overruled) > 0 {
		success.Message = fmt.Sprintf("ConfigMap %s: settings are not heeded, because clustering depends on others: %s",
			settingsConfigMapName(cluster), strings.Join(w.overruled, ", "))
	}
	switch trouble := w.failureMessage(); {
	case trouble != "":
		success.Status, success.Reason, success.Message = metav1.ConditionFalse, mocov1beta2.ReconcileFailedReason, trouble
		out.After, out.Why = userRetry, "something is missing or refused"
	case len(w.passwords) > 0:
		return reconcile.Outcome{After: outdatedRetry, Why: "passwords are made"}, nil
	default:
		cluster.Status.ReconcileInfo = mocov1beta2.ReconcileInfo{Generation: cluster.Generation, ReconcileVersion: version}
		out.Events = append(out.Events, rolloutEvents(w)...)
	}
	c.setCondition(cluster, success)
	c.setCondition(cluster, statefulSetReadiness(seen, w))
	if settingsConfigMapName(cluster) != "" {
		out.After = cmp.Or(out.After, userRetry)
	}
	return out, w.err
}

// failureMessage is what went wrong, for people, sorted; empty if nothing did.
func (w *changeSet) failureMessage() string {
	all := slices.Clone(w.refused)
	if w.err != nil {
		all = append(all, describeError(w.err))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// describeError says what went wrong in words that are stable and free of secrets.
func describeError(err error) string {
	if reason := k8serrors.ReasonForError(err); reason != "" {
		return "the API server answered " + string(reason)
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// reportActive writes whether reconciliation goes on, and tells of annotations that are ignored, once per change.
func (c Controller) reportActive(cluster *mocov1beta2.MySQLCluster, active metav1.Condition) []reconcile.Event {
	active.Type = mocov1beta2.ReconciliationActiveCondition
	var told []reconcile.Event
	if wrong := describeIgnoredAnnotations(cluster); wrong != "" {
		old := meta.FindStatusCondition(cluster.Status.Conditions, active.Type)
		if old == nil || !strings.HasSuffix(old.Message, wrong) {
			told = append(told, reconcile.Event{Warning: true, Reason: annotationIgnored, Action: reconcileAction, Note: wrong})
		}
		active.Message = strings.TrimPrefix(active.Message+"; "+wrong, "; ")
	}
	cluster.Status.Pause = stopRecord(cluster, c.Clock.Now())
	c.setCondition(cluster, active)
	c.setCondition(cluster, specSupport(cluster))
	return told
}

// reportStop leaves what the last pass said of the objects, and says Unknown where none has said anything.
func (c Controller) reportStop(cluster *mocov1beta2.MySQLCluster) reconcile.Outcome {
	record := stopRecord(cluster, c.Clock.Now()).Reconciliation
	text := describeStop(cluster, *record)
	out := reconcile.Outcome{Why: "reconciliation is stopped"}
	out.Events = c.reportActive(cluster, metav1.Condition{
		Status: metav1.ConditionFalse, Reason: mocov1beta2.ReconciliationInactiveReason, Message: text,
	})
	for _, kind := range []string{mocov1beta2.StatefulSetReadyCondition, mocov1beta2.ReconcileSuccessCondition} {
		if meta.FindStatusCondition(cluster.Status.Conditions, kind) == nil {
			c.setCondition(cluster, metav1.Condition{
				Type: kind, Status: metav1.ConditionUnknown, Reason: mocov1beta2.ReconciliationInactiveReason, Message: text,
			})
		}
	}
	return out
}

// statefulSetReadiness says how far the Pods are.
func statefulSetReadiness(seen *observation, w changeSet) metav1.Condition {
	is := metav1.Condition{
		Type: mocov1beta2.StatefulSetReadyCondition, Status: metav1.ConditionFalse,
		Reason: mocov1beta2.StatefulSetNotReadyReason, Message: w.rollout.Message,
	}
	switch {
	case seen.statefulSet == nil:
		is.Reason, is.Message = mocov1beta2.StatefulSetNotFoundReason, "there is no StatefulSet yet"
	case w.rollout.Done && len(w.apply) == 0:
		is.Status, is.Reason, is.Message = metav1.ConditionTrue, mocov1beta2.StatefulSetReadyReason, ""
	}
	return is
}

func specSupport(cluster *mocov1beta2.MySQLCluster) metav1.Condition {
	is := metav1.Condition{
		Type: mocov1beta2.SpecFullySupportedCondition, Status: metav1.ConditionTrue, Reason: mocov1beta2.FullySupportedReason,
	}
	if fields := mocov1beta2.Unsupported(cluster.Spec); len(fields) > 0 {
		is.Status, is.Reason = metav1.ConditionFalse, mocov1beta2.FieldsIgnoredReason
		is.Message = "these fields are kept and not acted on: " + strings.Join(fields, ", ")
	}
	return is
}

func (c Controller) setCondition(cluster *mocov1beta2.MySQLCluster, is metav1.Condition) {
	reconcile.SetCondition(&cluster.Status.Conditions, is, cluster.Generation, c.Clock)
}

// rolloutEvents tell what was done to a Pod.
func rolloutEvents(w changeSet) []reconcile.Event {
	if !w.isNotEmpty() || len(w.apply)+len(w.prune) > 0 {
		return nil
	}
	switch w.rollout.Action.(type) {
	case provisioning.Nothing:
	case provisioning.ReplacePod:
		return []reconcile.Event{{Reason: podReplaced, Action: rolloutAction, Note: w.rollout.Message}}
	case provisioning.RequestSwitchover:
		return []reconcile.Event{{Reason: switchoverRequested, Action: rolloutAction, Note: w.rollout.Message}}
	}
	return nil
}
