// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// stoppableKind is a kind of objects that people stop.
type stoppableKind struct {
	gvk schema.GroupVersionKind
	// names are what people call it, in lower case: the singular first, then the plural and the short names.
	names       []string
	addToScheme func(*runtime.Scheme) error
	newObject   func() client.Object
	newList     func() client.ObjectList
	// describe has a row for each of the object's switches.
	describe func(client.Object) []stopRow
}

func (k stoppableKind) hasName(text string) bool {
	return slices.Contains(k.names, strings.ToLower(text))
}

func stoppableKinds() []stoppableKind {
	return []stoppableKind{
		{
			gvk:         hivev1.ClusterDeploymentKind(),
			names:       []string{"clusterdeployment", "clusterdeployments", "cd"},
			addToScheme: hivev1.AddToScheme,
			newObject:   func() client.Object { return &hivev1.ClusterDeployment{} },
			newList:     func() client.ObjectList { return &hivev1.ClusterDeploymentList{} },
			describe:    restoreStatus(describeClusterDeployment),
		},
		{
			gvk:         mocov1beta2.MySQLClusterKind(),
			names:       []string{"mysqlcluster", "mysqlclusters"},
			addToScheme: mocov1beta2.AddToScheme,
			newObject:   func() client.Object { return &mocov1beta2.MySQLCluster{} },
			newList:     func() client.ObjectList { return &mocov1beta2.MySQLClusterList{} },
			describe:    restoreStatus(describeMySQLCluster),
		},
		{
			gvk:         korifiv1alpha1.CFAppKind(),
			names:       []string{"cfapp", "cfapps"},
			addToScheme: korifiv1alpha1.AddToScheme,
			newObject:   func() client.Object { return &korifiv1alpha1.CFApp{} },
			newList:     func() client.ObjectList { return &korifiv1alpha1.CFAppList{} },
			describe:    restoreStatus(describeCFApp),
		},
	}
}

// stopRow is what is known of one switch of an object.
type stopRow struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Part is what the switch stops of the object.
	Part string `json:"part"`
	// State is that of a ClusterDeployment's status.powerState; otherwise running, stopping, stopped, starting or unknown.
	State string `json:"state"`
	// Stopped is whether it is to be stopped now.
	Stopped bool `json:"stopped"`
	// Since and By are of the stop while it is to be stopped, of the last start otherwise; Reason and Until are of the stop.
	Since  *metav1.Time `json:"since,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Until  *metav1.Time `json:"until,omitempty"`
	// Next is what people can do, or what happens by itself.
	Next string `json:"next,omitempty"`
	// Message is what the object's status says.
	Message    string `json:"message,omitempty"`
	stops      stoprecord.Records
	conditions []metav1.Condition
}

// newStopRow takes from the record what is about the switch as it is now: the controller may not have seen yet what somebody wrote.
func newStopRow(k schema.GroupVersionKind, obj client.Object, part string, isStopped bool, stops stoprecord.Records) stopRow {
	r := stopRow{
		Namespace: obj.GetNamespace(), Kind: k.Kind, Name: obj.GetName(), Part: part, Stopped: isStopped, stops: stops,
	}
	switch {
	case len(stops) == 0 || isStopped != stops.Holds():
	case isStopped:
		r.Since, r.By, r.Reason, r.Until = &stops[0].Since, stops[0].By, stops[0].Reason, stops[0].Until
	default:
		r.Since, r.By = stops[0].EndedAt, stops[0].StartedBy
	}
	return r
}

// withNext adds what to do about a stop: what is wrong with it first, then what ends it.
func (r stopRow) withNext(startCommand string) stopRow {
	ignored := r.stops.DescribeIgnored()
	switch {
	case !r.Stopped:
	case ignored != "":
		r.Next = ignored
	case r.Until != nil:
		r.Next = "starts by itself"
	default:
		r.Next = startCommand
	}
	return r
}

// patchCommand works as it is printed, whatever the current namespace is.
func (r stopRow) patchCommand(spec string) string {
	return fmt.Sprintf(`kubectl patch -n %s %s %s --type merge -p '{"spec":{%s}}'`, r.Namespace, strings.ToLower(r.Kind), r.Name, spec)
}

func describeClusterDeployment(cd *hivev1.ClusterDeployment) []stopRow {
	stops := stoprecord.Records(cd.Status.Stops)
	isStopped := cd.Spec.PowerState == hivev1.PowerStateHibernating && !stops.HasEnded()
	r := newStopRow(hivev1.ClusterDeploymentKind(), cd, "machines", isStopped, stops)
	r.conditions = cd.Status.Conditions
	r.State = cmp.Or(cd.Status.PowerState, "unknown")
	if ready := meta.FindStatusCondition(r.conditions, hivev1.ClusterReadyCondition); ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.patchCommand(`"powerState":"Running"`))
	if record := cd.Status.Hibernation; !isStopped && sleepsByItself(cd) {
		r.Stopped, r.Since, r.By = true, &record.SleepStartedAt, record.RequestedBy
		r.Next = "resumes when the annotation " + hivev1.ResumeRequestedAtAnnotation + " has a later time, in RFC 3339"
	}
	if stalled := meta.FindStatusCondition(r.conditions, hivev1.ClusterStalledCondition); stalled != nil && stalled.Status == metav1.ConditionTrue {
		r.Next = "it is stuck: " + stalled.Message
	}
	return []stopRow{r}
}

// sleepsByItself reports whether spec.hibernateAfter was over, of which spec.powerState says nothing.
func sleepsByItself(cd *hivev1.ClusterDeployment) bool {
	record := cd.Status.Hibernation
	return record != nil && record.PowerStateBefore != nil && *record.PowerStateBefore == cd.Spec.PowerState && record.ResumeStartedAt == nil && record.ResumedAt == nil
}

func describeMySQLCluster(c *mocov1beta2.MySQLCluster) []stopRow {
	records := []stoprecord.Records{c.Status.ClusteringStops, c.Status.ReconciliationStops}
	isAsked := []bool{c.ClusteringStopped(), c.ReconciliationStopped()}
	var rows []stopRow
	for i, part := range moco.DescribeParts(c) {
		r := newStopRow(mocov1beta2.MySQLClusterKind(), c, part.Name, isAsked[i] && !records[i].HasEnded(), records[i])
		r.conditions = c.Status.Conditions
		r.State, r.Message, r.Next = part.State, part.Message, part.Next
		if ignored := records[i].DescribeIgnored(); r.Stopped && ignored != "" {
			r.Next = ignored
		}
		rows = append(rows, r)
	}
	stops, chosen := stoprecord.Records(c.Status.InstanceStops), c.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	if chosen == "" && len(stops) == 0 {
		return rows
	}
	r := newStopRow(mocov1beta2.MySQLClusterKind(), c, "instances", chosen != "" && !stops.HasEnded(), stops)
	r.conditions = c.Status.Conditions
	r.State = "running"
	if r.Stopped {
		r.State, r.Message = "stopped", "instances that are left alone: "+chosen
	}
	return append(rows, r.withNext(fmt.Sprintf("kubectl annotate -n %s mysqlcluster %s %s-", c.Namespace, c.Name, mocov1beta2.StoppedInstancesAnnotation)))
}

func describeCFApp(app *korifiv1alpha1.CFApp) []stopRow {
	r := newStopRow(korifiv1alpha1.CFAppKind(), app, "app", app.Spec.DesiredState == korifiv1alpha1.StoppedState, app.Status.Stops)
	r.conditions = app.Status.Conditions
	ready := meta.FindStatusCondition(r.conditions, korifiv1alpha1.ReadyCondition)
	switch {
	case ready == nil:
		r.State = "unknown"
	case r.Stopped && ready.Reason == korifiv1alpha1.StoppedReason:
		r.State = "stopped"
	case r.Stopped:
		r.State = "stopping"
	case ready.Reason == korifiv1alpha1.RunningReason:
		r.State = "running"
	default:
		r.State = "starting"
	}
	if ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.patchCommand(`"desiredState":"STARTED"`))
	if ready != nil && ready.Reason == korifiv1alpha1.BlockedReason {
		r.Next = "it is stuck: " + ready.Message
	}
	return []stopRow{r}
}
