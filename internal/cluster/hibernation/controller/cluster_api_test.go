// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// controllerInterval is how often the test doubles check machines. Real health checks wait for minutes.
const controllerInterval = 50 * time.Millisecond

// managedCluster is a cluster with machines that test doubles replace: one for Cluster API on the hub, and those for
// the MachineHealthChecks of OpenShift and of Cluster API in the cluster. Unless a test double is paused, it
// immediately replaces each machine that does not run.
type managedCluster struct {
	*testCluster
	cluster      *unstructured.Unstructured
	healthChecks []*unstructured.Unstructured
	machines     []*unstructured.Unstructured
}

// objects are the Cluster and the MachineHealthChecks.
func (s *managedCluster) objects() []*unstructured.Unstructured {
	return append([]*unstructured.Unstructured{s.cluster}, s.healthChecks...)
}

func (e *env) installMachineControllers(t *testing.T) {
	t.Helper()
	e.InstallCRDs(t, filepath.Join("testdata", "machine_controllers.yaml"))
}

func newObject(group, version, kind string, key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// newManagedCluster creates the Cluster before the ClusterDeployment. edit changes the objects before the controllers
// start.
func (e *env) newManagedCluster(t *testing.T, mode string, edit func(s *managedCluster)) *managedCluster {
	t.Helper()
	s := &managedCluster{}
	s.testCluster = e.newCluster(t, func(r *clusterSetup) {
		infraID := r.cd.Spec.ClusterMetadata.InfraID
		if mode != "" {
			r.cd.Annotations = map[string]string{hivev1.MachineGroupsAnnotation: mode}
		}
		s.cluster = newObject("cluster.x-k8s.io", "v1beta2", "Cluster", client.ObjectKey{Namespace: r.cd.Namespace, Name: infraID})
		s.healthChecks = []*unstructured.Unstructured{
			newObject("machine.openshift.io", "v1beta1", "MachineHealthCheck", client.ObjectKey{Namespace: "openshift-machine-api", Name: "workers-of-" + infraID}),
			newObject("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck", client.ObjectKey{Namespace: r.cd.Namespace, Name: "workers"}),
		}
		if edit != nil {
			edit(s)
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-machine-api"}}
		testenv.ExpectNoError(t, client.IgnoreAlreadyExists(e.Client.Create(t.Context(), namespace)))
		for _, u := range s.objects() {
			testenv.ExpectNoError(t, e.Client.Create(t.Context(), u))
		}
	})
	testenv.Eventually(t, "the machines run", func() error { return s.cloud.ExpectState(t, s.infraID, "running") })
	for _, id := range s.ids {
		machine := newObject("cluster.x-k8s.io", "v1beta2", "Machine", client.ObjectKey{Namespace: s.key.Namespace, Name: id})
		testenv.ExpectNoError(t, e.Client.Create(t.Context(), machine))
		s.machines = append(s.machines, machine)
	}
	s.replaceMachines(t, "Cluster API", s.cluster, func(u *unstructured.Unstructured) bool {
		isPaused, _, err := unstructured.NestedBool(u.Object, "spec", "paused")
		return err == nil && isPaused
	})
	for _, check := range s.healthChecks {
		s.replaceMachines(t, "the health check of "+check.GroupVersionKind().Group, check, func(u *unstructured.Unstructured) bool {
			_, isPaused := u.GetAnnotations()[preflight.PausedAnnotation]
			return isPaused
		})
	}
	return s
}

// replaceMachines runs a test double. It deletes the Machine of each machine that does not run, together with the
// machine, and creates new ones. The health check runs in the cluster, and therefore acts only while a machine runs.
func (s *managedCluster) replaceMachines(t *testing.T, name string, of *unstructured.Unstructured, isPaused func(*unstructured.Unstructured) bool) {
	t.Helper()
	hub := s.env.Client
	testenv.RunInBackground(t, name, func(ctx context.Context) error {
		tick := time.NewTicker(controllerInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			var off []string
			running := 0
			for _, i := range s.cloud.ListInstances(t, s.infraID) {
				switch i.State {
				case "running":
					running++
				case "terminated", "shutting-down":
				default:
					off = append(off, i.ID)
				}
			}
			if of != s.cluster && running == 0 || len(off) == 0 {
				continue
			}
			var now unstructured.Unstructured
			now.SetGroupVersionKind(of.GroupVersionKind())
			// After an error, for example because the test has ended, no machine is replaced.
			if err := hub.Get(ctx, client.ObjectKeyFromObject(of), &now); err != nil || isPaused(&now) {
				continue
			}
			for _, id := range off {
				machine := newObject("cluster.x-k8s.io", "v1beta2", "Machine", client.ObjectKey{Namespace: s.key.Namespace, Name: id})
				if client.IgnoreNotFound(hub.Delete(ctx, machine)) == nil {
					t.Logf("%s replaces %s", name, id)
					s.cloud.ReplaceInstance(t, s.infraID, id)
				}
			}
		}
	})
}

// expectSameMachines expects that no machine was terminated, and no Machine replaced.
func (s *managedCluster) expectSameMachines(t *testing.T) {
	t.Helper()
	for _, i := range s.cloud.ListInstances(t, s.infraID) {
		if i.State == "terminated" || i.State == "shutting-down" {
			t.Errorf("the machine %s was terminated", i.ID)
		}
	}
	for _, m := range s.machines {
		testenv.ExpectNoError(t, s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m.DeepCopy()))
	}
}

// stateOf returns the user-visible parts of objects.
func (s *managedCluster) stateOf(t *testing.T, objects ...*unstructured.Unstructured) string {
	t.Helper()
	var text strings.Builder
	for _, u := range objects {
		now := u.DeepCopy()
		testenv.ExpectNoError(t, s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), now))
		fmt.Fprintf(&text, "%s: %v %v %v\n", now.GroupVersionKind().GroupKind(), now.Object["spec"], now.GetAnnotations(), now.GetLabels())
	}
	return text.String()
}

// patchObject changes an object as a user.
func (s *managedCluster) patchObject(t *testing.T, u *unstructured.Unstructured, patch string) {
	t.Helper()
	testenv.ExpectNoError(t, s.env.Client.Patch(t.Context(), u.DeepCopy(), rawMerge(patch), client.FieldOwner("kubectl-edit")))
}

// groupNames are the objects' names in the record.
func (s *managedCluster) groupNames() []string {
	return []string{
		"Cluster.cluster.x-k8s.io/" + s.cluster.GetName(),
		"MachineHealthCheck.machine.openshift.io/" + s.healthChecks[0].GetName(),
		"MachineHealthCheck.cluster.x-k8s.io/" + client.ObjectKeyFromObject(s.healthChecks[1]).String(),
	}
}

func (s *managedCluster) hibernate(t *testing.T) {
	t.Helper()
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}

func (s *managedCluster) resume(t *testing.T) {
	t.Helper()
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	if cd := s.get(t); len(cd.Status.Hibernation.MachineGroups) > 0 || meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterDegradedCondition) {
		t.Errorf("expected a whole cluster and no recorded group, found %+v and %+v", cd.Status.Hibernation, cd.Status.Conditions)
	}
}

// TestMachineControllersArePaused hibernates clusters with controllers that replace each machine that does not run.
func TestMachineControllersArePaused(t *testing.T) {
	t.Parallel()
	for name, scenario := range map[string]func(*testing.T, *env){
		"active controllers are paused and unpaused":                      pausesControllers,
		"controllers paused by a user before the hibernation stay paused": keepsPausesOfUsers,
		"controllers paused by a user during the hibernation stay paused": leavesPausesOfUsers,
		"Cluster without the annotation is refused":                       refusesActiveCluster,
		"Cluster with the annotation scale-to-zero is refused":            refusesToScaleCluster,
		"paused Cluster without the annotation hibernates":                stopsPausedCluster,
		"cancelled hibernation unpauses the controllers":                  releasesCancelledPauses,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t) // The MachineHealthChecks of an API server belong to every cluster that it serves.
			e.installMachineControllers(t)
			e.cloud.SetLatency(t, machineLatency, machineLatency)
			e.startManager(t, clouds())
			scenario(t, e)
		})
	}
}

func pausesControllers(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
	before := s.stateOf(t, s.objects()...)
	for range 2 {
		s.hibernate(t)
		s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "True", hivev1.HibernatingHibernationReason, append(s.groupNames(), "suspended machine groups: ")})
		if found := s.stateOf(t, s.cluster); !strings.Contains(found, "paused:true") {
			t.Errorf("expected a paused Cluster, found %s", found)
		}
		s.resume(t)
		testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
	}
	s.expectSameMachines(t)
}

func keepsPausesOfUsers(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, func(s *managedCluster) {
		s.cluster.Object["spec"] = map[string]any{"paused": true}
		for _, check := range s.healthChecks {
			check.SetAnnotations(map[string]string{preflight.PausedAnnotation: "maintenance"})
		}
	})
	before := s.stateOf(t, s.objects()...)
	s.hibernate(t)
	testenv.ExpectEqual(t, "recorded groups", 0, len(s.get(t).Status.Hibernation.MachineGroups))
	s.resume(t)
	testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
	s.expectSameMachines(t)
}

// leavesPausesOfUsers replaces Torpor's pauses as a user during the hibernation. The resume keeps the new pauses.
func leavesPausesOfUsers(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
	s.hibernate(t)
	s.patchObject(t, s.cluster, `{"spec":{"paused":false}}`)
	s.patchObject(t, s.cluster, `{"spec":{"paused":true}}`)
	for _, check := range s.healthChecks {
		s.patchObject(t, check, fmt.Sprintf(`{"metadata":{"annotations":{%q:"maintenance"}}}`, preflight.PausedAnnotation))
	}
	before := s.stateOf(t, s.objects()...)
	s.resume(t)
	testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
	for _, name := range s.groupNames() {
		e.WaitForEvent(t, s.key.Namespace, "MachineGroupsLeft", name)
	}
}

func refusesActiveCluster(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, "", nil)
	s.expectRefusal(t)
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hivev1.MachineGroupsAnnotation, hivev1.MachineGroupsSuspend))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.resume(t)
	s.expectSameMachines(t)
}

func refusesToScaleCluster(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, hivev1.MachineGroupsScaleToZero, nil)
	s.expectRefusal(t)
	s.expectSameMachines(t)
}

// expectRefusal expects that no machine is stopped, and that a message contains the Cluster and advice.
func (s *managedCluster) expectRefusal(t *testing.T) {
	t.Helper()
	before := s.stateOf(t, s.cluster)
	name := s.groupNames()[0]
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{name, "spec.paused", "torpor.dev/machine-groups to suspend"}})
	testenv.ExpectNoError(t, (&groupedCluster{testCluster: s.testCluster}).hasMessage(hivev1.ClusterHibernationPossibleCondition, name))
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
	testenv.ExpectEqual(t, "the Cluster", before, s.stateOf(t, s.cluster))
}

// stopsPausedCluster stops and starts a cluster with controllers that a user has paused.
func stopsPausedCluster(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, "", func(s *managedCluster) {
		s.cluster.Object["spec"] = map[string]any{"paused": true}
		for _, check := range s.healthChecks {
			check.SetAnnotations(map[string]string{preflight.PausedAnnotation: ""})
		}
	})
	s.hibernate(t)
	s.resume(t)
	s.expectSameMachines(t)
}

func releasesCancelledPauses(t *testing.T, e *env) {
	t.Helper()
	s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
	before := s.stateOf(t, s.objects()...)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	testenv.Eventually(t, "the Cluster is paused", func() error {
		return testenv.ErrorIf(!strings.Contains(s.stateOf(t, s.cluster), "paused:true"), "it is not")
	})
	s.resume(t)
	testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
	s.expectSameMachines(t)
}

// refusedPatches refuses changes to Clusters on the hub, as if a right were missing.
type refusedPatches struct {
	http.RoundTripper
	refuses *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (r refusedPatches) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.refuses.Load() && request.Method == http.MethodPatch && strings.HasPrefix(request.URL.Path, "/apis/cluster.x-k8s.io/") {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
	}
	return r.RoundTripper.RoundTrip(request)
}

// TestPausesThatAreRefusedStopNothing refuses the pause on the hub, and then the pause in the cluster.
func TestPausesThatAreRefusedStopNothing(t *testing.T) {
	t.Parallel()
	for name, isOfHub := range map[string]bool{"refusal by the hub stops no machine": true, "refusal by the cluster stops no machine": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.installMachineControllers(t)
			e.cloud.SetLatency(t, machineLatency, machineLatency)
			target, hub := newMortalTarget(t, e), &atomic.Bool{}
			s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
			s.putSecret(t, adminSecret, map[string][]byte{kubeconfigKey: target.kubeconfig})
			before := s.stateOf(t, s.objects()...)
			e.Environment = e.WithTransport(func(next http.RoundTripper) http.RoundTripper { return refusedPatches{next, hub} })
			e.startManager(t, clouds())
			hub.Store(isOfHub)
			target.refuses.Store(!isOfHub)
			s.setPowerState(t, hivev1.PowerStateHibernating)
			text := map[bool]string{true: "spec.paused of Cluster.cluster.x-k8s.io/", false: "MachineHealthChecks cannot be changed"}[isOfHub]
			s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{text}})
			testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
			hub.Store(false)
			target.refuses.Store(false)
			s.resume(t)
			testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
			s.expectSameMachines(t)
		})
	}
}
