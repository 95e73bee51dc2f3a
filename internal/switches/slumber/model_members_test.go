// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// memberKind describes how the model handles the objects of a kind.
type memberKind struct {
	kinds.Kind
	build func(m *modelMember)
	// isOff reports whether a stop of an object is requested, judging by the fields that its own controller reads.
	isOff func(m *modelMember, now time.Time) bool
	// control runs a pass of the object's own controller, and finish writes the status that this controller reports
	// once the object has reached the requested state.
	control func(m *modelMember, now time.Time)
	finish  func(m *modelMember, now time.Time)
	// setSwitch has a user stop or start the object. change makes another change by a user that only this kind has.
	setSwitch func(m *modelMember, isStopped bool, now time.Time)
	change    func(m *modelMember, now time.Time)
	// describeSpec returns the part of the spec that users write.
	describeSpec func(m *modelMember) any
}

// modelMember is an object, its copies in caches, and what users have requested for it.
type modelMember struct {
	memberKind
	t    testing.TB
	draw func(n int) int
	// stored is the object of the API server, with its version. cached is the copy that controllers see, which may be
	// older.
	stored, cached                 kinds.Object
	version, cachedVersion, serial int
	// stoppedBy is the user who stopped the object; empty if no user has. stoppedAt is the time of this stop, and until
	// its end; zero if the user set none.
	stoppedBy        string
	stoppedAt, until time.Time
	// value is what a user last wrote to the field that a stop sets; nil if it is absent.
	value any
	// isChangePending is true while a user's change to a field that a stop has set is unseen by its controller.
	isChangePending bool
	refusal         string
	// resumes and interventions count the actions of users.
	resumes, interventions int
	// written names the transition that the Slumber wrote last.
	written string
	// quietAt is when the object was last fully stopped, and backAt when it last ran or had another stop. excusedAt
	// is when a wave last had no need to wait for the object to sleep, and movedAt when the object came into its
	// wave.
	quietAt, backAt, excusedAt, movedAt time.Time
	// flips counts how often a switch was set or restored.
	flips int
}

func (m *modelMember) String() string { return m.GVK().Kind + " " + m.stored.GetName() }

// write stores a change at the API server. Copies that it returned before do not change.
func (m *modelMember) write(change func(kinds.Object)) {
	before := m.stored
	m.stored, _ = before.DeepCopyObject().(kinds.Object)
	change(m.stored)
	m.version++
	if is, ok := m.stored.(*unstructured.Unstructured); ok {
		was, _ := before.(*unstructured.Unstructured)
		if !reflect.DeepEqual(was.Object["spec"], is.Object["spec"]) {
			is.SetGeneration(is.GetGeneration() + 1)
		}
	}
}

// sync updates the caches from the API server.
func (m *modelMember) sync() { m.cached, m.cachedVersion = m.stored, m.version }

func (m *modelMember) annotate(name, value string) {
	m.write(func(obj kinds.Object) {
		annotations := maps.Clone(obj.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[name] = value; value == "" {
			delete(annotations, name)
		}
		obj.SetAnnotations(annotations)
	})
}

// read returns the state that a Slumber would see now.
func (m *modelMember) read(now time.Time) kinds.State { return m.ReadState(m.stored, now) }

// store writes the stops of a Slumber, as its controller does.
func (m *modelMember) store(slumber string, stop torporv1alpha1.ScheduledStop) {
	stop = throughAPI(m.t, stop)
	stored := []torporv1alpha1.ScheduledStop{stop}
	if stop.Slumber == "" || m.version%2 == 0 {
		stored = nil // Another project's schema drops the field. The schema may be replaced between any two writes.
	}
	name, value, err := stoprecord.ScheduledAnnotation(stop, slumber)
	if err != nil {
		m.t.Fatal(err)
	}
	m.annotate(name, value)
	if m.Switch() != nil {
		return
	}
	m.write(func(obj kinds.Object) {
		switch obj := obj.(type) {
		case *hivev1.ClusterDeployment:
			obj.Status.ScheduledStops = stored
		case *mocov1beta2.MySQLCluster:
			obj.Status.ScheduledStops = stored
		case *korifiv1alpha1.CFApp:
			obj.Status.ScheduledStops = stored
		default:
			m.t.Fatalf("expected a kind with a status, found %T", obj)
		}
	})
}

// listMemberKinds returns all kinds that a Slumber can stop, and one with a StopAdapter.
func listMemberKinds(t testing.TB) []memberKind {
	t.Helper()
	computed := kinds.ListOwn()
	all := []memberKind{
		clustersOfModel(computed[0]), databasesOfModel(computed[1]), appsOfModel(computed[2]),
	}
	for _, kind := range kinds.ListWorkloads() {
		example := testenv.ReadWorkload(t, kind.GVK().Kind, kind.Switch().Operations)
		values := []any{example.On, example.Off}
		if _, isNumber := example.On.(int64); isNumber {
			values = slices.Insert(values, 1, any(int64(1)))
		}
		all = append(all, switchedOfModel(kind, example.Path, values, example.ReportStatus))
	}
	kustomizations, err := stopadapter.NewKind(testenv.ReadStopAdapter(t, "flux-kustomization"))
	testenv.ExpectNoError(t, err)
	return append(all, switchedOfModel(kustomizations, []string{"spec", "suspend"}, []any{nil, false, true}, finishKustomization))
}

func clustersOfModel(kind kinds.Kind) memberKind {
	return memberKind{
		Kind: kind,
		build: func(m *modelMember) {
			cd := &hivev1.ClusterDeployment{}
			cd.Spec.Installed = true
			m.stored = cd
		},
		isOff: func(m *modelMember, now time.Time) bool {
			cd, _ := m.stored.(*hivev1.ClusterDeployment)
			scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, now)
			recorded := stoprecord.NextRecords(cd.Status.Stops, askedOfCluster(m, cd), now)
			return hibernation.EffectivePowerState(cd.Spec.PowerState, recorded, scheduled, now) == hivev1.PowerStateHibernating
		},
		setSwitch: func(m *modelMember, isStopped bool, _ time.Time) {
			m.write(func(obj kinds.Object) {
				cd, _ := obj.(*hivev1.ClusterDeployment)
				cd.Spec.PowerState = map[bool]hivev1.PowerState{true: hivev1.PowerStateHibernating, false: hivev1.PowerStateRunning}[isStopped]
			})
		},
		control: func(m *modelMember, now time.Time) {
			m.write(func(obj kinds.Object) {
				cd, _ := obj.(*hivev1.ClusterDeployment)
				cd.Status.Stops = stoprecord.NextRecords(cd.Status.Stops, askedOfCluster(m, cd), now)
			})
		},
		finish: func(m *modelMember, now time.Time) {
			isOff := m.isOff(m, now)
			m.write(func(obj kinds.Object) {
				cd, _ := obj.(*hivev1.ClusterDeployment)
				hibernating, ready := metav1.ConditionFalse, metav1.ConditionTrue
				if cd.Status.Hibernation = nil; isOff {
					hibernating, ready = metav1.ConditionTrue, metav1.ConditionFalse
					cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(now)}
				}
				cd.Status.Conditions = []metav1.Condition{
					{Type: hivev1.ClusterHibernatingCondition, Status: hibernating, Reason: hivev1.HibernatingHibernationReason}, {Type: hivev1.ClusterReadyCondition, Status: ready},
				}
			})
		},
		describeSpec: func(m *modelMember) any {
			cd, _ := m.stored.(*hivev1.ClusterDeployment)
			return cd.Spec.PowerState == hivev1.PowerStateHibernating
		},
	}
}

// askedOfCluster returns the request that the object's annotations hold, as an admission policy records it.
func askedOfCluster(m *modelMember, cd *hivev1.ClusterDeployment) stoprecord.Request {
	return stoprecord.Request{
		IsStopped: cd.Spec.PowerState == hivev1.PowerStateHibernating, At: m.stoppedAt, By: cd.Annotations[torporv1alpha1.RequestedByAnnotation],
		Version: cd.Annotations[torporv1alpha1.RequestVersionAnnotation], Until: cd.Annotations[torporv1alpha1.UntilAnnotation],
	}
}

// databasesOfModel returns the kind MySQLCluster. A field of the spec stops the servers, without a record;
// clustering and reconciliation are stopped separately.
func databasesOfModel(kind kinds.Kind) memberKind {
	wanted := func(m *modelMember, now time.Time) (c, asWanted *mocov1beta2.MySQLCluster) {
		c, _ = m.stored.(*mocov1beta2.MySQLCluster)
		return c, mysqlswitches.ApplyScheduled(c, now)
	}
	return memberKind{
		Kind: kind,
		build: func(m *modelMember) {
			c := &mocov1beta2.MySQLCluster{}
			c.Status.Instances = []mocov1beta2.InstanceStatus{{Ordinal: 0, Role: mocov1beta2.RolePrimary}}
			m.stored = c
		},
		isOff: func(m *modelMember, now time.Time) bool {
			_, asWanted := wanted(m, now)
			return asWanted.Spec.Offline
		},
		setSwitch: func(m *modelMember, isStopped bool, _ time.Time) {
			m.write(func(obj kinds.Object) {
				c, _ := obj.(*mocov1beta2.MySQLCluster)
				c.Spec.Offline = isStopped
			})
		},
		change: func(m *modelMember, _ time.Time) {
			name := []string{mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation}[m.draw(2)]
			m.annotate(name, []string{"", "true"}[m.draw(2)])
		},
		control: func(*modelMember, time.Time) {},
		finish: func(m *modelMember, now time.Time) {
			c, asWanted := wanted(m, now)
			if c.ReconciliationStopped() {
				return // Nothing is created or deleted.
			}
			m.write(func(obj kinds.Object) {
				c, _ := obj.(*mocov1beta2.MySQLCluster)
				available := metav1.Condition{Type: mocov1beta2.AvailableCondition, Status: metav1.ConditionTrue, Reason: "Healthy"}
				if c.Status.OfflineSince = nil; asWanted.Spec.Offline {
					c.Status.OfflineSince = new(metav1.NewTime(now))
					available.Status, available.Reason = metav1.ConditionFalse, "Offline"
				}
				c.Status.Conditions = []metav1.Condition{available}
			})
		},
		describeSpec: func(m *modelMember) any {
			c, _ := m.stored.(*mocov1beta2.MySQLCluster)
			return c.Spec.Offline
		},
	}
}

func appsOfModel(kind kinds.Kind) memberKind {
	admit := func(m *modelMember, now time.Time, change func(*korifiv1alpha1.CFApp)) {
		m.write(func(obj kinds.Object) {
			updated, _ := obj.(*korifiv1alpha1.CFApp)
			old := updated.DeepCopy()
			change(updated)
			state, err := revision.NextRevision(old, updated)
			if err != nil {
				m.t.Fatal(err)
			}
			revision.SetRevisionAnnotations(old, updated, state, "alice", now)
		})
	}
	return memberKind{
		Kind: kind,
		build: func(m *modelMember) {
			a := &korifiv1alpha1.CFApp{}
			a.Spec.DesiredState = korifiv1alpha1.StartedState
			a.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: "1", korifiv1alpha1.LastStopRevisionAnnotation: "1"}
			m.stored = a
		},
		isOff: func(m *modelMember, now time.Time) bool {
			a, _ := m.stored.(*korifiv1alpha1.CFApp)
			return process.ApplyScheduled(a, now).Spec.DesiredState != korifiv1alpha1.StartedState
		},
		setSwitch: func(m *modelMember, isStopped bool, now time.Time) {
			admit(m, now, func(a *korifiv1alpha1.CFApp) {
				a.Spec.DesiredState = map[bool]korifiv1alpha1.AppState{true: korifiv1alpha1.StoppedState, false: korifiv1alpha1.StartedState}[isStopped]
			})
			if !isStopped {
				m.resumes++
			}
		},
		change: func(m *modelMember, now time.Time) { // A restart.
			m.serial++
			admit(m, now, func(a *korifiv1alpha1.CFApp) {
				a.Annotations[torporv1alpha1.RestartRequestAnnotation] = fmt.Sprint("restart-", m.serial)
			})
			m.resumes++
		},
		control: func(m *modelMember, now time.Time) {
			m.write(func(obj kinds.Object) {
				a, _ := obj.(*korifiv1alpha1.CFApp)
				a.Status.Stops = app.NextStops(a, now)
				a.Status.ObservedRevision, _, _ = revision.ReadRevision(a)
				if current := revision.DescribeCurrent(a); len(a.Status.Restarts) == 0 || a.Status.Restarts[0].Revision < current.Revision {
					a.Status.Restarts = []korifiv1alpha1.Restart{current}
				}
			})
		},
		finish: func(m *modelMember, now time.Time) {
			isOff := m.isOff(m, now)
			m.write(func(obj kinds.Object) {
				a, _ := obj.(*korifiv1alpha1.CFApp)
				reason := map[bool]string{true: korifiv1alpha1.StoppedReason, false: korifiv1alpha1.RunningReason}[isOff]
				a.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: reason}}
			})
		},
		describeSpec: func(m *modelMember) any {
			a, _ := m.stored.(*korifiv1alpha1.CFApp)
			return a.Spec.DesiredState != korifiv1alpha1.StartedState
		},
	}
}

// switchedOfModel returns a kind that is stopped by setting a field. Users write one of the values to the field; the
// last value stops the object.
func switchedOfModel(kind kinds.Kind, path []string, values []any, finish func(*unstructured.Unstructured)) memberKind {
	off := values[len(values)-1]
	k := memberKind{Kind: kind}
	k.build = func(m *modelMember) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"other": "1"}, "status": map[string]any{}}}
		u.SetGroupVersionKind(kind.GVK())
		u.SetGeneration(1)
		m.stored, m.value = u, values[0]
		m.setField(path, m.value)
	}
	k.isOff = func(m *modelMember, _ time.Time) bool { return m.readField(path) == off }
	k.setSwitch = func(m *modelMember, isStopped bool, now time.Time) {
		m.write(func(obj kinds.Object) {
			if isStopped {
				fieldswitch.AskForStop(obj)
			} else {
				fieldswitch.AskForStart(obj)
			}
		})
		m.noteWriter(torporv1alpha1.StoppedAnnotation, now)
	}
	k.change = func(m *modelMember, _ time.Time) { m.changeField(path, values[m.draw(len(values))], off) }
	k.control = func(m *modelMember, now time.Time) { m.controlSwitch(path, now) }
	k.finish = func(m *modelMember, _ time.Time) {
		m.write(func(obj kinds.Object) {
			u, _ := obj.(*unstructured.Unstructured)
			finish(u)
		})
	}
	k.describeSpec = func(m *modelMember) any { return m.readField(path) }
	return k
}

// noteWriter has the API server record who wrote an annotation, and when.
func (m *modelMember) noteWriter(annotation string, now time.Time) {
	m.write(func(obj kinds.Object) {
		fields := fmt.Sprintf(`{"f:metadata":{"f:annotations":{"f:%s":{}}}}`, annotation)
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(now)), FieldsV1: metav1.NewFieldsV1(fields)}})
	})
}

func (m *modelMember) readField(path []string) any {
	u, _ := m.stored.(*unstructured.Unstructured)
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return value
}

func (m *modelMember) setField(path []string, value any) {
	m.write(func(obj kinds.Object) {
		u, _ := obj.(*unstructured.Unstructured)
		if value == nil {
			unstructured.RemoveNestedField(u.Object, path...)
			return
		}
		if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
			m.t.Fatal(err)
		}
	})
}

// changeField has a user write the field that a stop sets.
func (m *modelMember) changeField(path []string, value, off any) {
	is := fieldswitch.ReadSwitch(m.stored)
	isKept := len(is.Saved) > 0
	if isKept && value == off || value == m.readField(path) {
		return // A write that changes nothing cannot be recognized as a new request.
	}
	m.value = value
	m.setField(path, value)
	if !isKept {
		return
	}
	m.isChangePending = true
	m.resumes++
	if is.Records.Holds() && is.Records.RequestedStop().RequestVersion == m.stored.GetAnnotations()[torporv1alpha1.RequestVersionAnnotation] {
		m.stoppedBy = "" // The change starts the object, because a pass has already seen the user's stop.
	}
}

// controlSwitch runs a pass of the kind's controller. Its write is lost if the object has changed since it was read.
func (m *modelMember) controlSwitch(path []string, now time.Time) {
	seen, _ := m.cached.(*unstructured.Unstructured)
	plan := m.decide(seen, now)
	if m.cachedVersion != m.version || reflect.DeepEqual(plan.Next.Object, seen.Object) {
		return
	}
	before := m.readField(path)
	m.write(func(obj kinds.Object) {
		u, _ := obj.(*unstructured.Unstructured)
		u.Object = plan.Next.DeepCopy().Object
	})
	if m.sync(); m.readField(path) != before {
		m.flips++
	}
	m.isChangePending = false
	again, _ := m.cached.(*unstructured.Unstructured)
	if next := m.decide(again, now); !reflect.DeepEqual(next.Next.Object["spec"], again.Object["spec"]) || !maps.Equal(next.Next.GetAnnotations(), again.GetAnnotations()) {
		m.t.Fatalf("%s: expected one write (%s), found another (%s) after it", m, plan.Rule, next.Rule)
	}
}

func (m *modelMember) decide(u *unstructured.Unstructured, now time.Time) fieldswitch.SwitchPlan {
	return fieldswitch.Decide(fieldswitch.ObservedSwitch{Now: now, Object: u, Operations: m.Switch().Operations, Refusal: m.refusal, Manager: "kubectl"})
}

// finishKustomization reports a ready status unless the Kustomization is suspended, as Flux does.
func finishKustomization(u *unstructured.Unstructured) {
	if isSuspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); isSuspended {
		return
	}
	u.Object["status"] = map[string]any{"observedGeneration": u.GetGeneration(), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
}
