// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

func now() time.Time { return time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC) }

// night is an open stop of a Slumber.
func night() []torporv1alpha1.ScheduledStop {
	return []torporv1alpha1.ScheduledStop{{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now().Add(-time.Hour)), Requested: true}}}}
}

// TestStates has the state of objects of each kind: asleep, awake, or in parentheses why it is neither; whether the
// object can be stopped; whether it has a stop that is not a Slumber's; and who resumed it.
func TestStates(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		object kinds.Object
		want   string
	}{
		"cluster that cannot hibernate: awake":                                                     {newUnsupportedCluster(metav1.ConditionTrue), "awake stoppable unable: Unsupported: No version is known"},
		"cluster whose stop is refused: awake":                                                     {newRefusedCluster(), "awake stoppable unable: HibernationRefused: An upgrade is under way"},
		"unreachable unsupported cluster: neither asleep nor awake":                                {newUnsupportedCluster(metav1.ConditionFalse), "(Unsupported: No version is known) stoppable"},
		"cluster that runs: awake":                                                                 {newCluster("", metav1.ConditionFalse, metav1.ConditionTrue), "awake stoppable"},
		"cluster that hibernates: asleep":                                                          {newCluster("", metav1.ConditionTrue, metav1.ConditionFalse), "asleep stoppable"},
		"cluster that a user hibernates: asleep":                                                   {newCluster(hivev1.PowerStateHibernating, metav1.ConditionTrue, metav1.ConditionFalse), "asleep stoppable others"},
		"hibernating cluster whose stop by a user has just expired: asleep, not stopped by a user": {newExpired(newCluster(hivev1.PowerStateHibernating, metav1.ConditionTrue, metav1.ConditionFalse)), "asleep stoppable"},
		"stopped app whose stop by a user has just expired: asleep, not stopped by a user":         {newExpired(newApp(korifiv1alpha1.StoppedState, metav1.ConditionTrue, "Stopped", nil)), "asleep stoppable"},
		"healthy MySQL: awake":                                                                     {newMySQL(metav1.ConditionTrue, "Healthy", nil), "awake stoppable"},
		"healthy MySQL with a Slumber's stop: neither asleep nor awake":                            {newMySQL(metav1.ConditionTrue, "Healthy", func(c *mocov1beta2.MySQLCluster) { c.Status.ScheduledStops = night() }), "(Healthy) stoppable"},
		"offline MySQL that still has Pods: neither asleep nor awake":                              {newMySQL(metav1.ConditionFalse, "Offline", func(c *mocov1beta2.MySQLCluster) { c.Status.ScheduledStops = night() }), "(Offline) stoppable"},
		"MySQL with status.offlineSince: asleep":                                                   {newMySQL(metav1.ConditionFalse, "Offline", func(c *mocov1beta2.MySQLCluster) { c.Status.OfflineSince = new(metav1.NewTime(now())) }), "asleep stoppable"},
		"MySQL that a user took offline: neither asleep nor awake":                                 {newMySQL(metav1.ConditionFalse, "Offline", func(c *mocov1beta2.MySQLCluster) { c.Spec.Offline = true }), "(Offline) stoppable others"},
		"new MySQL without data: neither asleep nor awake":                                         {newMySQL(metav1.ConditionFalse, "Restoring", func(c *mocov1beta2.MySQLCluster) { c.Status.Instances = nil }), "(Restoring)"},
		"MySQL with stopped clustering: awake, and not stoppable": {newMySQL(metav1.ConditionTrue, "Healthy", func(c *mocov1beta2.MySQLCluster) {
			c.Annotations = map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"}
		}), "awake"},
		"MySQL that a user stopped during a Slumber's stop: neither asleep nor awake": {newMySQL(metav1.ConditionFalse, "Offline", func(c *mocov1beta2.MySQLCluster) {
			c.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
			c.Status.ScheduledStops = night()
		}), "(ReconciliationInactive) stoppable others"},
		"MySQL whose stop of reconciliation has just expired: awake, not stopped by a user": {newExpired(newMySQL(metav1.ConditionTrue, "Healthy", func(c *mocov1beta2.MySQLCluster) {
			c.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
		})), "awake stoppable"},
		"MySQL whose stop of clustering has just expired: awake": {newExpired(newMySQL(metav1.ConditionTrue, "Healthy", func(c *mocov1beta2.MySQLCluster) {
			c.Annotations = map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"}
		})), "awake stoppable"},
		"app that runs: awake":                               {newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Running", nil), "awake stoppable"},
		"app that starts: neither asleep nor awake":          {newApp(korifiv1alpha1.StartedState, metav1.ConditionFalse, "Starting", nil), "(Starting) stoppable"},
		"started app without instances: asleep":              {newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Stopped", nil), "asleep stoppable"},
		"app that a user stopped: asleep":                    {newApp(korifiv1alpha1.StoppedState, metav1.ConditionTrue, "Stopped", nil), "asleep stoppable others"},
		"stopped app that a user has just started: asleep":   {newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Stopped", map[string]string{torporv1alpha1.StartedByAnnotation: "carol", torporv1alpha1.StartedAtAnnotation: "2026-11-24T21:30:00Z"}), "asleep stoppable resumed by carol at 21:30"},
		"stopped app that a user has just restarted: asleep": {newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Stopped", map[string]string{torporv1alpha1.CauseAnnotation: "Restart", torporv1alpha1.RevisedByAnnotation: "dave", torporv1alpha1.RevisedAtAnnotation: "2026-11-24T21:45:00Z"}), "asleep stoppable resumed by dave at 21:45"},
		"stopped app that a user has just deployed: asleep":  {newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Stopped", map[string]string{torporv1alpha1.CauseAnnotation: "Deployment", torporv1alpha1.RevisedByAnnotation: "erin", torporv1alpha1.RevisedAtAnnotation: "2026-11-24T21:50:00Z"}), "asleep stoppable resumed by erin at 21:50"},
		"cluster whose schema drops its record: resumed by erin": {
			remember(t, newCluster("", metav1.ConditionFalse, metav1.ConditionTrue), "hibernation", `{"hibernation": {"sleepStartedAt": "2026-11-24T20:00:00Z"}, "stops": [{"since": "2026-11-24T20:00:00Z", "endedAt": "2026-11-24T21:00:00Z", "startedBy": "erin"}]}`),
			"(Running) stoppable resumed by erin at 21:00",
		},
		"MySQL whose schema drops its instances: stoppable": {
			remember(t, newMySQL(metav1.ConditionTrue, "", func(c *mocov1beta2.MySQLCluster) { c.Status.Instances = nil }), "clustering", `{"instances": [{"ordinal": 0, "role": "primary"}]}`),
			"() stoppable",
		},
		"MySQL whose schema drops status.offlineSince: asleep": {
			remember(t, newMySQL(metav1.ConditionFalse, "Offline", nil), "provisioning", `{"offlineSince": "2026-11-24T21:00:00Z"}`),
			"asleep stoppable",
		},
		"app whose schema drops its stops: not resumed": {
			remember(t, newApp(korifiv1alpha1.StartedState, metav1.ConditionTrue, "Running", map[string]string{torporv1alpha1.StartedByAnnotation: "frank", torporv1alpha1.StartedAtAnnotation: "2026-11-24T21:40:00Z"}), "restart", `{"stops": [{"since": "2026-11-24T20:00:00Z", "endedAt": "2026-11-24T21:40:00Z", "startedBy": "torpor.dev/until"}]}`),
			"awake stoppable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range kinds.ListOwn() {
				if fmt.Sprintf("%T", kind.New()) == fmt.Sprintf("%T", row.object) {
					if found := describe(kind.ReadState(row.object, now())); found != row.want {
						t.Errorf("expected %q, found %q", row.want, found)
					}
					return
				}
			}
			t.Errorf("expected a kind of %T, found none", row.object)
		})
	}
}

// remember stores the status fields of a controller in its annotation, and the stop of a Slumber in another
// annotation.
func remember[T kinds.Object](t *testing.T, obj T, controller, status string) T {
	t.Helper()
	name, value, err := stoprecord.ScheduledAnnotation(night()[0], night()[0].Slumber)
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{statusannotation.KeyOf("torpor-" + controller): status, name: value}
	maps.Copy(annotations, obj.GetAnnotations())
	obj.SetAnnotations(annotations)
	return obj
}

// farms is a kind whose objects may be stopped only while they are ready.
type farms struct{}

func (farms) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Farm"}
}

func (farms) Names() []string { return []string{"farm", "farms"} }

func (farms) Switch() *kinds.FieldSwitch {
	return &kinds.FieldSwitch{ReadActivity: func(u *unstructured.Unstructured) kinds.ObservedActivity {
		isReady := u.Object["status"] == "Ready"
		return kinds.ObservedActivity{IsStoppable: isReady, IsReady: isReady, IsQuiet: !isReady}
	}}
}

// TestStoppedObjectsStayMembers has a kind whose objects may be stopped only while they are ready, which a sleeping
// object never is. A sleeping object must stay a member of its Slumber.
func TestStoppedObjectsStayMembers(t *testing.T) {
	t.Parallel()
	kind := kinds.NewSwitched(farms{})
	for name, row := range map[string]struct {
		isReady, isStopped, want bool
	}{"ready": {isReady: true, want: true}, "not ready": {}, "asleep": {isStopped: true, want: true}} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if row.isReady {
			u.Object["status"] = "Ready"
		}
		if row.isStopped {
			annotation, value, err := stoprecord.ScheduledAnnotation(night()[0], night()[0].Slumber)
			if err != nil {
				t.Fatal(err)
			}
			u.SetAnnotations(map[string]string{annotation: value})
		}
		if found := kind.ReadState(u, now()).IsStoppable; found != row.want {
			t.Errorf("%s: found that it may be stopped: %t", name, found)
		}
	}
}

func TestEveryKindThatNeedsNoGroupHasOne(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds.ListBuiltIn() {
		if found := kinds.GroupKindOf(kind.GVK().Kind); found != kind.GVK().GroupKind() {
			t.Errorf("%s: expected the group %s, found %q", kind.GVK().Kind, kind.GVK().Group, found)
		}
	}
	if found := kinds.GroupKindOf("Kustomization"); found.Group != "" {
		t.Errorf("expected no group of a kind without built-in support, found %q", found)
	}
}

func describe(s kinds.State) string {
	text := "(" + s.Message + ")"
	switch {
	case s.IsAsleep && s.IsAwake:
		text = "both"
	case s.IsAsleep:
		text = "asleep"
	case s.IsAwake:
		text = "awake"
	}
	if s.IsStoppable {
		text += " stoppable"
	}
	if s.IsAwake && s.Message != "" {
		text += " unable: " + s.Message
	}
	if s.IsStoppedWithoutSlumbers {
		text += " others"
	}
	if !s.ResumedAt.IsZero() {
		text += " resumed by " + s.ResumedBy + " at " + s.ResumedAt.UTC().Format("15:04")
	}
	return text
}

func newCluster(asked hivev1.PowerState, hibernating, ready metav1.ConditionStatus) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{Installed: true, PowerState: asked}}
	cd.Status.Conditions = []metav1.Condition{
		{Type: hivev1.ClusterHibernatingCondition, Status: hibernating, Reason: hivev1.HibernatingHibernationReason},
		{Type: hivev1.ClusterReadyCondition, Status: ready, Reason: hivev1.RunningHibernationReason},
	}
	return cd
}

// newExpired returns an object with the record of a stop by a user whose end passed a minute ago. No controller has
// recorded the end yet.
func newExpired[T kinds.Object](obj T) T {
	until := now().Add(-time.Minute)
	stops := []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now().Add(-time.Hour)), Until: new(metav1.NewTime(until)), RequestedUntil: until.Format(time.RFC3339), Requested: true}}
	switch obj := any(obj).(type) {
	case *hivev1.ClusterDeployment:
		obj.Status.Stops = stops
	case *korifiv1alpha1.CFApp:
		obj.Status.Stops = stops
	case *mocov1beta2.MySQLCluster:
		obj.Status.ReconciliationStops, obj.Status.ClusteringStops = stops, stops
	}
	return obj
}

func newRefusedCluster() *hivev1.ClusterDeployment {
	cd := newUnsupportedCluster(metav1.ConditionTrue)
	cd.Status.Conditions[0].Reason, cd.Status.Conditions[0].Message = hivev1.RefusedHibernationReason, "An upgrade is under way"
	return cd
}

func newUnsupportedCluster(ready metav1.ConditionStatus) *hivev1.ClusterDeployment {
	cd := newCluster("", metav1.ConditionFalse, ready)
	cd.Status.Conditions[0].Reason, cd.Status.Conditions[0].Message = hivev1.UnsupportedHibernationReason, "No version is known"
	return cd
}

func newMySQL(available metav1.ConditionStatus, reason string, change func(*mocov1beta2.MySQLCluster)) *mocov1beta2.MySQLCluster {
	c := &mocov1beta2.MySQLCluster{}
	c.Status.Instances = []mocov1beta2.InstanceStatus{{Ordinal: 0, Role: mocov1beta2.RolePrimary}}
	c.Status.Conditions = []metav1.Condition{{Type: mocov1beta2.AvailableCondition, Status: available, Reason: reason}}
	if change != nil {
		change(c)
	}
	return c
}

func newApp(asked korifiv1alpha1.AppState, ready metav1.ConditionStatus, reason string, annotations map[string]string) *korifiv1alpha1.CFApp {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{korifiv1alpha1.RevisionAnnotation: "3", korifiv1alpha1.LastStopRevisionAnnotation: "0"}}}
	maps.Copy(app.Annotations, annotations)
	app.Spec.DesiredState = asked
	app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: ready, Reason: reason}}
	return app
}
