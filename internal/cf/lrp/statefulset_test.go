// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const guid = "8d1b1d4c-2f4a-4d3e-9c55-0a1b2c3d4e5f"

// newLRP returns the LRP of a web process at a revision.
func newLRP(version int64) *eiriniv1.LRP {
	return &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: revision.LRPName(guid, version)},
		Spec: eiriniv1.LRPSpec{
			GUID: guid, Version: revision.FormatRevision(version), ProcessType: "web", AppName: "my-app", AppGUID: "app", SpaceGUID: "space", Image: "example.com/app:1",
			Health: eiriniv1.Healthcheck{Type: "port", Port: 8080}, Ports: []int32{8080}, Instances: 3, MemoryMB: 64, DiskMB: 128,
		},
	}
}

// newWorkerLRP returns the LRP of a process that does not listen.
func newWorkerLRP() *eiriniv1.LRP {
	worker := newLRP(7)
	worker.Spec.ProcessType, worker.Spec.Health, worker.Spec.Ports = "worker", eiriniv1.Healthcheck{Type: "process"}, nil
	return worker
}

func TestStatefulSetIsOneRevision(t *testing.T) {
	lrp := newLRP(7)
	set := BuildStatefulSet(lrp, PodOptions{PullPolicy: corev1.PullAlways})
	selects := map[string]string{korifiv1alpha1.ProcessGUIDLabel: guid, korifiv1alpha1.VersionLabel: "7"}
	if diff := cmp.Diff(selects, set.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	other := BuildStatefulSet(newLRP(8), PodOptions{PullPolicy: corev1.PullAlways})
	if theirs := other.Spec.Template.Labels; selector.Matches(labels.Set(theirs)) || !selector.Matches(labels.Set(set.Spec.Template.Labels)) {
		t.Errorf("expected the Pods of revision 7 only, found those of revision 8 with %v", theirs)
	}
	if set.Name != lrp.Name || set.Name == other.Name || *set.Spec.Replicas != 3 || set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement ||
		set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType || len(set.OwnerReferences) != 1 {
		t.Errorf("found %+v", set)
	}
}

// The kubelet runs a preStop hook whenever a Pod terminates, including after a stop. Instances therefore have no hook.
// Their controller delays only the terminations that need it.
func TestInstancesHaveNoHookBeforeTheirEnd(t *testing.T) {
	pod := BuildPodSpec(newLRP(7), PodOptions{StopDelay: 3 * time.Second})
	if pod.Containers[0].Lifecycle != nil || *pod.TerminationGracePeriodSeconds != graceSeconds {
		t.Errorf("expected no hook and a grace of %d seconds, found %+v and %d", graceSeconds, pod.Containers[0].Lifecycle, *pod.TerminationGracePeriodSeconds)
	}
}

func TestPodsAreRestricted(t *testing.T) {
	pod := BuildStatefulSet(newLRP(7), PodOptions{PullPolicy: corev1.PullAlways}).Spec.Template.Spec
	restricted := corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	if c := pod.Containers[0].SecurityContext; *c.AllowPrivilegeEscalation || !*c.RunAsNonRoot || *c.SeccompProfile != restricted || !slices.Contains(c.Capabilities.Drop, "ALL") {
		t.Errorf("found %+v", c)
	}
	if !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || *pod.TerminationGracePeriodSeconds != 10 ||
		pod.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("found %+v", pod)
	}
	want := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("128Mi")}
	if diff := cmp.Diff(want, pod.Containers[0].Resources.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if len(pod.TopologySpreadConstraints) != 2 {
		t.Errorf("found %+v, want Pods to be spread over zones and nodes", pod.TopologySpreadConstraints)
	}
	lrp := newLRP(7)
	lrp.Spec.MemoryMB, lrp.Spec.CPUWeight = 0, 50
	resources := BuildStatefulSet(lrp, PodOptions{PullPolicy: corev1.PullAlways}).Spec.Template.Spec.Containers[0].Resources
	if _, limited := resources.Limits[corev1.ResourceMemory]; limited || resources.Requests.Cpu().MilliValue() != 50 {
		t.Errorf("found %+v, want no limit of memory and 50m of CPU", resources)
	}
}

// As in Korifi, the CPU request is 100m per GiB of memory, and at least 5m.
func TestInstancesRequestCPUByTheirMemory(t *testing.T) {
	for memoryMB, want := range map[int64]int64{0: 0, 1: 5, 64: 6, 1024: 100, 4096: 400, math.MaxInt64: korifiv1alpha1.MaxMegabytes / 1024 * 100} {
		lrp := newLRP(1)
		lrp.Spec.MemoryMB = memoryMB
		if found := BuildStatefulSet(lrp, PodOptions{PullPolicy: corev1.PullAlways}).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); found != want {
			t.Errorf("%d MiB: expected %dm, found %dm", memoryMB, want, found)
		}
	}
}

func TestEnvironment(t *testing.T) {
	lrp := newLRP(7)
	lrp.Spec.Env = map[string]string{"A": "env", "B": "env", "PORT": "1"}
	lrp.Spec.Environment = []corev1.EnvVar{
		{Name: "B", Value: "environment"}, {Name: "CF_INSTANCE_INDEX", Value: "9"}, {Name: "PORT", Value: "2"}, {Name: "VCAP_APPLICATION", Value: "mine"},
	}
	got := map[string]string{}
	var names []string
	for _, e := range BuildStatefulSet(lrp, PodOptions{PullPolicy: corev1.PullAlways}).Spec.Template.Spec.Containers[0].Env {
		names = append(names, e.Name)
		if got[e.Name] = e.Value; e.ValueFrom != nil {
			got[e.Name] = "<" + e.ValueFrom.FieldRef.FieldPath + ">"
		}
	}
	want := map[string]string{
		"A": "env", "B": "environment", "PORT": "8080", "VCAP_APP_PORT": "8080", "MEMORY_LIMIT": "64M", "POD_NAME": "<metadata.name>", "CF_INSTANCE_GUID": "<metadata.uid>",
		"VCAP_APPLICATION": `{"application_id":"app","application_name":"my-app","application_uris":[],"application_version":"7","limits":{"disk":128,"mem":64},` +
			`"name":"my-app","process_id":"` + guid + `","process_type":"web","space_id":"space","uris":[],"version":"7"}`,
		"CF_INSTANCE_INDEX": "<metadata.labels['apps.kubernetes.io/pod-index']>", "CF_INSTANCE_IP": "<status.hostIP>", "CF_INSTANCE_INTERNAL_IP": "<status.podIP>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.IsSorted(names) || len(names) != len(got) {
		t.Errorf("found %v, want each once and sorted", names)
	}
}

// A worker has no port and therefore no PORT variable. An LRP that a user created belongs to no app. The variables for
// Kubernetes Services are disabled.
func TestEnvironmentWithoutAPort(t *testing.T) {
	worker := newWorkerLRP()
	byHand := worker.DeepCopy()
	byHand.Spec.AppGUID = ""
	for name, row := range map[string]struct {
		lrp  *eiriniv1.LRP
		want []string
	}{
		"worker: no PORT": {worker, []string{"CF_INSTANCE_GUID", "CF_INSTANCE_INDEX", "CF_INSTANCE_INTERNAL_IP", "CF_INSTANCE_IP", "MEMORY_LIMIT", "POD_NAME", "VCAP_APPLICATION"}},
		"LRP that a user created: only the variables of the platform": {byHand, []string{"CF_INSTANCE_GUID", "CF_INSTANCE_INDEX", "CF_INSTANCE_INTERNAL_IP", "CF_INSTANCE_IP", "POD_NAME"}},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, e := range buildEnvironment(row.lrp) {
				names = append(names, e.Name)
			}
			if diff := cmp.Diff(row.want, names); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c := buildContainer(row.lrp); len(c.Ports) != 0 || c.StartupProbe != nil || c.LivenessProbe != nil {
				t.Errorf("expected neither ports nor probes, found %+v", c)
			}
		})
	}
}

func TestProbes(t *testing.T) {
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}
	for name, row := range map[string]struct {
		in              eiriniv1.Healthcheck
		startup, living *corev1.Probe
	}{
		"a process health check creates no probe":             {eiriniv1.Healthcheck{Type: "process", Port: 8080}, nil, nil},
		"a health check without a type creates no probe":      {eiriniv1.Healthcheck{Port: 8080}, nil, nil},
		"a port health check without a port creates no probe": {eiriniv1.Healthcheck{Type: "port"}, nil, nil},
		"a port health check without timeouts may fail for a minute after the start": {
			eiriniv1.Healthcheck{Type: "port", Port: 8080},
			&corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 61},
			&corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 30, TimeoutSeconds: 1, FailureThreshold: 1},
		},
		"health check timeouts are rounded up to whole seconds": {
			eiriniv1.Healthcheck{Type: "port", Port: 8080, TimeoutMs: 2001, InvocationTimeoutMs: 1001},
			&corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 1, TimeoutSeconds: 2, FailureThreshold: 4},
			&corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 30, TimeoutSeconds: 2, FailureThreshold: 1},
		},
		"an HTTP health check requests its path": {
			eiriniv1.Healthcheck{Type: "http", Port: 1, Endpoint: "/h", TimeoutMs: 1000},
			&corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/h", Port: intstr.FromInt32(1)}}, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 2},
			&corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/h", Port: intstr.FromInt32(1)}}, PeriodSeconds: 30, TimeoutSeconds: 1, FailureThreshold: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			startup, living := buildProbes(row.in)
			if diff := cmp.Diff([]*corev1.Probe{row.startup, row.living}, []*corev1.Probe{startup, living}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Race m of docs/adr/0010-revisions-of-apps.md: each budget selects the Pods of one revision. Kubernetes does not evict
// a Pod that two budgets select.
func TestBudgetsOfRevisionsDoNotOverlap(t *testing.T) {
	seven, eight := newLRP(7), newLRP(8)
	a, b := BuildDisruptionBudget(seven), BuildDisruptionBudget(eight)
	if a.Name == b.Name || cmp.Equal(a.Spec.Selector, b.Spec.Selector) || a.Spec.MinAvailable.StrVal != "50%" {
		t.Errorf("found %+v and %+v", a, b)
	}
	seven.Spec.Instances = 1
	if got := BuildDisruptionBudget(seven); got != nil {
		t.Errorf("found %+v, want none for one instance", got)
	}
}

func TestLimitsDoNotOverflow(t *testing.T) {
	for _, size := range []int64{1, 64, 1 << 20, 1<<20 + 1, 1 << 43, 1 << 44, 1<<63 - 1} {
		lrp := newLRP(7)
		lrp.Spec.MemoryMB, lrp.Spec.DiskMB, lrp.Spec.Instances = size, size, 2_000_000_000
		set := BuildStatefulSet(lrp, PodOptions{PullPolicy: corev1.PullAlways})
		if *set.Spec.Replicas != korifiv1alpha1.MaxInstances {
			t.Errorf("found %d replicas, want %d", *set.Spec.Replicas, korifiv1alpha1.MaxInstances)
		}
		want := min(size, korifiv1alpha1.MaxMegabytes) << 20
		limits := set.Spec.Template.Spec.Containers[0].Resources.Limits
		if memory, disk := limits.Memory().Value(), limits.StorageEphemeral().Value(); memory != want || disk != want {
			t.Errorf("%d MiB: found limits of %d and %d bytes, want %d", size, memory, disk, want)
		}
	}
}
