// SPDX-License-Identifier: Apache-2.0

package process

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// lrpSource returns the source for the LRP of a web process with an image.
func lrpSource() LRPSource {
	p := LRPSource{App: &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, Process: &korifiv1alpha1.CFProcess{}, Droplet: &korifiv1alpha1.Droplet{Registry: korifiv1alpha1.Registry{Image: "example.com/app:1"}}, Settings: &corev1.Secret{}}
	p.App.Namespace, p.App.Spec.DisplayName, p.App.Spec.Lifecycle.Type = "space", "my-app", korifiv1alpha1.DockerLifecycle
	p.Process.Namespace, p.Process.Name, p.Process.UID = "space", guid, "uid"
	p.Process.Spec = korifiv1alpha1.CFProcessSpec{ProcessType: "web", MemoryMB: 64, DiskQuotaMB: 128}
	return p
}

func buildTestLRP(change ...func(*LRPSource)) *eiriniv1.LRP {
	p := lrpSource()
	for _, c := range change {
		c(&p)
	}
	return BuildLRP(p, CreateLRP{Name: revision.LRPName(guid, 7), Revision: 7, Instances: 3})
}

func TestBuildLRP(t *testing.T) {
	lrp := buildTestLRP()
	want := eiriniv1.LRPSpec{
		GUID: guid, Version: "7", ProcessType: "web", AppName: "my-app", AppGUID: "app", SpaceGUID: "space", Image: "example.com/app:1",
		Health: eiriniv1.Healthcheck{Type: "port", Port: 8080}, Ports: []int32{8080}, Instances: 3, MemoryMB: 64, DiskMB: 128,
	}
	if diff := cmp.Diff(want, lrp.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lrp.Labels[korifiv1alpha1.VersionLabel] != "7" || lrp.Labels[korifiv1alpha1.ProcessGUIDLabel] != guid || len(lrp.OwnerReferences) != 1 || !slices.Contains(lrp.Finalizers, eiriniv1.LRPFinalizer) {
		t.Errorf("found %+v", lrp.ObjectMeta)
	}
}

func TestLRPHasCommandPortsAndHealthCheck(t *testing.T) {
	spec := func(c func(*korifiv1alpha1.CFProcessSpec)) func(*LRPSource) {
		return func(p *LRPSource) { c(&p.Process.Spec) }
	}
	worker := spec(func(s *korifiv1alpha1.CFProcessSpec) { s.ProcessType = "worker" })
	type runs struct {
		Command []string
		Ports   []int32
		Health  eiriniv1.Healthcheck
	}
	web := eiriniv1.Healthcheck{Type: "port", Port: 8080}
	for name, row := range map[string]struct {
		in   *eiriniv1.LRP
		want runs
	}{
		"a command of the process runs in a shell": {
			buildTestLRP(spec(func(s *korifiv1alpha1.CFProcessSpec) { s.Command = "run fast" })), runs{[]string{"/bin/sh", "-c", "run fast"}, []int32{8080}, web},
		},
		"a detected command runs in a shell": {
			buildTestLRP(spec(func(s *korifiv1alpha1.CFProcessSpec) { s.DetectedCommand = "run" })), runs{[]string{"/bin/sh", "-c", "run"}, []int32{8080}, web},
		},
		"a droplet's command takes precedence over a detected one": {
			buildTestLRP(spec(func(s *korifiv1alpha1.CFProcessSpec) { s.DetectedCommand = "old" }), func(p *LRPSource) {
				p.Droplet.ProcessTypes = []korifiv1alpha1.ProcessType{{Type: "worker", Command: "work"}, {Type: "web", Command: "serve"}}
			}),
			runs{[]string{"/bin/sh", "-c", "serve"}, []int32{8080}, web},
		},
		"a command of a buildpack app runs in the buildpack launcher": {
			buildTestLRP(func(p *LRPSource) {
				p.App.Spec.Lifecycle.Type, p.Process.Spec.Command = korifiv1alpha1.BuildpackLifecycle, "run"
			}),
			runs{[]string{"/cnb/lifecycle/launcher", "run"}, []int32{8080}, web},
		},
		"the image's ports are used if the process has none": {
			buildTestLRP(func(p *LRPSource) { p.Droplet.Ports = []int32{9000} }), runs{nil, []int32{9000}, eiriniv1.Healthcheck{Type: "port", Port: 9000}},
		},
		"a process's ports take precedence over the image's": {
			buildTestLRP(func(p *LRPSource) { p.Droplet.Ports, p.Process.Spec.Ports = []int32{9000}, []int32{9001} }),
			runs{nil, []int32{9001}, eiriniv1.Healthcheck{Type: "port", Port: 9001}},
		},
		"a worker has no port": {buildTestLRP(worker), runs{nil, nil, eiriniv1.Healthcheck{Type: "process"}}},
		"a worker with a port health check gets a process health check": {
			buildTestLRP(worker, spec(func(s *korifiv1alpha1.CFProcessSpec) { s.HealthCheck.Type = korifiv1alpha1.PortHealthCheck })),
			runs{nil, nil, eiriniv1.Healthcheck{Type: "process"}},
		},
		"a web process can have a process health check": {
			buildTestLRP(spec(func(s *korifiv1alpha1.CFProcessSpec) { s.HealthCheck.Type = korifiv1alpha1.ProcessHealthCheck })),
			runs{nil, []int32{8080}, eiriniv1.Healthcheck{Type: "process"}},
		},
		"an HTTP health check keeps its path and timeouts": {
			buildTestLRP(spec(func(s *korifiv1alpha1.CFProcessSpec) {
				s.HealthCheck = korifiv1alpha1.HealthCheck{Type: "http", Data: korifiv1alpha1.HealthCheckData{HTTPEndpoint: "/h", TimeoutSeconds: 5, InvocationTimeoutSeconds: 2}}
			})),
			runs{nil, []int32{8080}, eiriniv1.Healthcheck{Type: "http", Port: 8080, Endpoint: "/h", TimeoutMs: 5000, InvocationTimeoutMs: 2000}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, runs{row.in.Spec.Command, row.in.Spec.Ports, row.in.Spec.Health}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDesiredInstances(t *testing.T) {
	process := lrpSource().Process
	if got := DesiredInstances(process); got != 1 {
		t.Errorf("found %d, want 1 for web", got)
	}
	process.Spec.ProcessType = "worker"
	if got := DesiredInstances(process); got != 0 {
		t.Errorf("found %d, want 0 for others", got)
	}
	for asked, want := range map[int32]int32{math.MaxInt32: korifiv1alpha1.MaxInstances, -1: 0} {
		if process.Spec.DesiredInstances = &asked; DesiredInstances(process) != want {
			t.Errorf("found %d instances for %d, which upstream's schema allows, want %d", DesiredInstances(process), asked, want)
		}
	}
	process.Spec.DesiredInstances = new(int32(4))
	if got := DesiredInstances(process); got != 4 {
		t.Errorf("found %d, want the value of the spec", got)
	}
}

func TestNewDesiredApp(t *testing.T) {
	a := &korifiv1alpha1.CFApp{Spec: korifiv1alpha1.CFAppSpec{DesiredState: korifiv1alpha1.StartedState}}
	a.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: "7", korifiv1alpha1.LastStopRevisionAnnotation: "5"}
	a.Spec.Drain = korifiv1alpha1.Drain{Policy: korifiv1alpha1.DrainOverlap, TimeoutSeconds: new(int32(60))}
	want := DesiredApp{Started: true, Revision: 7, LastStop: 5, Overlap: true, DrainTimeout: 60e9, Rollout: RolloutOptions{MaxInFlight: 2}}
	if diff := cmp.Diff(want, NewDesiredApp(a, RolloutOptions{MaxInFlight: 2})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
