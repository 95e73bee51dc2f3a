// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"regexp"
	"slices"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

const (
	// stoppedValue is the value of a boolean annotation on a stopped object.
	stoppedValue = "true"
	// managerPrefix is the prefix of the manager's field managers.
	managerPrefix = "torpor-"
)

// NextOfCluster returns the annotations of a ClusterDeployment, whose switch is in its spec.
func NextOfCluster(r Request, wasStopped, isStopped bool) map[string]string {
	return r.nextAnnotations(switchChange{
		of: stoprecord.AnnotationSwitch{
			RequestedBy: torporv1alpha1.RequestedByAnnotation, RequestVersion: torporv1alpha1.RequestVersionAnnotation,
			Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation,
		},
		wasStopped: wasStopped, isStopped: isStopped,
	})
}

// NextOfMySQLCluster returns the annotations of a MySQLCluster, which has three switches.
func NextOfMySQLCluster(r Request) map[string]string {
	// A list with an ordinal in it: any other value stops nothing.
	ordinals := regexp.MustCompile(`^\s*\[\s*-?[0-9]+\s*(,\s*-?[0-9]+\s*)*\]\s*$`)
	isTrue := func(value string) bool { return value == stoppedValue }
	change := func(of stoprecord.AnnotationSwitch, isStop func(string) bool) switchChange {
		return switchChange{of: of, wasStopped: isStop(r.Before[of.Name]), isStopped: isStop(r.Sent[of.Name])}
	}
	return r.nextAnnotations(
		change(mysqlswitches.ClusteringSwitch(), isTrue), change(mysqlswitches.ReconciliationSwitch(), isTrue), change(mysqlswitches.InstancesSwitch(), ordinals.MatchString),
	)
}

// NextOfSlumber returns the annotations of a Slumber. They record the user who created it or last changed its
// effect.
func NextOfSlumber(r Request, isChanged bool) map[string]string {
	next := r.copySent()
	if isChanged {
		next[torporv1alpha1.RequestedByAnnotation] = r.User
	} else {
		r.restore(next, torporv1alpha1.RequestedByAnnotation)
	}
	return next
}

// NextOfWorkload returns the annotations of a Deployment, a StatefulSet, a CronJob or an object of a StopAdapter.
func NextOfWorkload(r Request) map[string]string {
	if r.overwritesRecord() {
		r.Sent = r.withRecordRestored()
	}
	of := fieldswitch.AnnotationSwitch()
	return r.nextAnnotations(switchChange{of: of, wasStopped: r.Before[of.Name] == stoppedValue, isStopped: r.Sent[of.Name] == stoppedValue})
}

func isOfSlumber(name string) bool {
	return strings.HasPrefix(name, torporv1alpha1.SlumberAnnotationPrefix)
}

// isTorporAnnotation reports whether an annotation belongs to Torpor.
func isTorporAnnotation(name string) bool {
	return strings.HasPrefix(name, torporv1alpha1.GroupVersion().Group+"/") || isOfSlumber(name)
}

// overwritesRecord reports whether another client than the manager changes Torpor's record, as kubectl
// rollout undo does, which replaces all annotations by those of an old ReplicaSet. The manager is recognized
// by the names of its field managers. A change of the record by another client is not a request.
func (r Request) overwritesRecord() bool {
	if strings.HasPrefix(r.FieldManager, managerPrefix) {
		return false
	}
	var changed []string
	for name := range r.Before {
		if isTorporAnnotation(name) && !r.keeps(name) {
			changed = append(changed, name)
		}
	}
	return slices.Contains(changed, torporv1alpha1.StopsAnnotation) ||
		slices.Contains(changed, torporv1alpha1.RestoreAnnotation) && slices.ContainsFunc(changed, isOfSlumber)
}

// withRecordRestored returns the annotations that are sent, with those of Torpor as they were before.
func (r Request) withRecordRestored() map[string]string {
	next := map[string]string{}
	for name, value := range r.Sent {
		if !isTorporAnnotation(name) {
			next[name] = value
		}
	}
	for name, value := range r.Before {
		if isTorporAnnotation(name) {
			next[name] = value
		}
	}
	return next
}
