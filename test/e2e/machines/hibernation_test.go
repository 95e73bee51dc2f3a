// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	infraID = "metal-x7k2p"
	nodes   = 1
	rounds  = 3
	// patience is longer than a guest takes to boot without acceleration on a machine with a load of 20.
	patience = 15 * time.Minute
)

// machineStory is a cluster of guests, and the state of the test.
type machineStory struct {
	env        *testenv.Environment
	hypervisor hypervisor
	witness    *witness
	guests     []guestNode
	cluster    *hivev1.ClusterDeployment
	began      time.Time
	// first is the line that the Pod has written at its first start.
	first string
}

func TestMachinesHibernate(t *testing.T) {
	s := startMachines(t)
	s.logf(t, "every node is Ready, the StatefulSet is Ready, its data is %s", s.first)
	for round := range rounds {
		s.hibernate(t, round+1)
		s.resume(t, round+1)
		if round == 0 {
			s.survivePowerCut(t)
		}
	}
}

func (s *machineStory) logf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%6.1fs %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// startMachines starts the cluster, or skips the test where machines cannot run.
func startMachines(t *testing.T) *machineStory {
	t.Helper()
	if os.Getenv("TORPOR_E2E") != "machines" {
		t.Skip("TORPOR_E2E is not machines: this test takes minutes; run make e2e-machines")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: a hypervisor creates namespaces and mounts")
	}
	libvirt, guest := os.Getenv("TORPOR_LIBVIRT"), os.Getenv("TORPOR_GUEST")
	for what, file := range map[string]string{
		"TORPOR_LOCAL":   os.Getenv("TORPOR_LOCAL"),
		"TORPOR_LIBVIRT": filepath.Join(libvirt, "usr/bin/virsh"), "TORPOR_GUEST": filepath.Join(guest, "usr/bin/containerd"),
	} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("no machines: %s contains no %q: run make e2e-machines as root on Debian", what, file)
		}
	}
	work := t.TempDir()
	s := &machineStory{env: testenv.StartBridgedControlPlane(t), hypervisor: startHypervisor(t, libvirt, work), began: time.Now()}
	s.witness = startWitness(t, s.hypervisor.socket())
	s.env.InstallCRDs(t)
	prepareKernel(t, guest, work)
	for i := range nodes {
		s.guests = append(s.guests, newGuestNode(infraID, i+1))
	}
	for _, g := range s.guests {
		g.makeDisk(t, s.env, guest, work)
		s.hypervisor.virsh(t, "define", filepath.Join(work, g.name+".xml"))
		s.hypervisor.virsh(t, "start", g.name)
	}
	t.Cleanup(func() { s.showConsoles(t, work) })
	s.logf(t, "libvirtd runs, and %d guests boot", nodes)
	for _, g := range s.guests {
		s.awaitNode(t, g.name, time.Time{})
	}
	s.startPods(t)
	s.createCluster(t)
	return s
}

func (*machineStory) showConsoles(t *testing.T, work string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(work, "*.console"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(file), text)
		}
	}
}

// awaitNode waits until a node is Ready with a heartbeat after the given time, and returns the time at which it was
// observed.
func (s *machineStory) awaitNode(t *testing.T, name string, since time.Time) time.Time {
	t.Helper()
	testenv.EventuallyWithin(t, patience, "node "+name+" is Ready", func() error {
		var node corev1.Node
		if err := s.env.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(since) {
				return nil
			}
		}
		return errors.New("not yet")
	})
	return time.Now()
}

func (s *machineStory) startPods(t *testing.T) {
	t.Helper()
	_, err := s.tryKubectl(t, "apply", "-f", "testdata/statefulset.yaml")
	testenv.ExpectNoError(t, err)
	s.awaitPods(t, time.Time{})
	s.first = s.exec(t, "cat", "/data/first")
}

// awaitPods waits until the StatefulSet's Pod is Ready, and has become so at the given time or later.
func (s *machineStory) awaitPods(t *testing.T, since time.Time) {
	t.Helper()
	testenv.EventuallyWithin(t, patience, "the Pod is Ready", func() error {
		var pod corev1.Pod
		if err := s.env.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "data-0"}, &pod); err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.Time.Before(since.Truncate(time.Second)) {
				return nil
			}
		}
		return fmt.Errorf("found it in the phase %s", pod.Status.Phase)
	})
}

// exec runs a command in the Pod through the kubelet of its machine, and returns the output.
func (s *machineStory) exec(t *testing.T, command ...string) string {
	t.Helper()
	var out string
	testenv.EventuallyWithin(t, patience, "the Pod answers", func() error {
		var err error
		out, err = s.tryKubectl(t, append([]string{"exec", "data-0", "--", "/bin/busybox"}, command...)...)
		return err
	})
	return out
}

func (s *machineStory) tryKubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return tryRun(t, filepath.Join(filepath.Dir(os.Getenv("TORPOR_LOCAL")), "kubectl"), append([]string{"--kubeconfig", s.env.KubeconfigPath(t)}, args...)...)
}

// createCluster creates the ClusterDeployment on the hub, which is the cluster's own control plane, and
// starts torpor.
func (s *machineStory) createCluster(t *testing.T) {
	t.Helper()
	namespace := s.env.CreateNamespace(t)
	kubeconfig, err := os.ReadFile(s.env.KubeconfigPath(t))
	testenv.ExpectNoError(t, err)
	for name, data := range map[string]map[string][]byte{"cloud": {"uri": []byte("qemu:///system")}, "admin": {"kubeconfig": kubeconfig}} {
		s.env.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data})
	}
	s.cluster = testenv.BuildClusterDeployment(client.ObjectKey{Namespace: namespace, Name: "metal"}, "", "admin")
	s.cluster.Spec.Platform = hivev1.Platform{Libvirt: &hivev1.LibvirtPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: "cloud"}}}
	s.cluster.Spec.ClusterMetadata.InfraID = infraID
	s.cluster.Spec.PowerState = hivev1.PowerStateRunning
	s.env.ExpectCreated(t, s.cluster)
	testenv.StartProcess(t, testenv.TorporPath(t), []string{
		"manager", "--kubeconfig", s.env.KubeconfigPath(t), "--libvirt-socket", s.witness.socket, "--metrics-address", "0", "--probe-address", "0", "--controllers", "hibernation",
	}, nil)
	s.awaitState(t, hivev1.PowerStateRunning)
}

// awaitState waits until the cluster reports a state, and returns the time.
func (s *machineStory) awaitState(t *testing.T, want hivev1.PowerState) time.Time {
	t.Helper()
	testenv.EventuallyWithin(t, patience, "the cluster is "+string(want), func() error {
		if err := s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(s.cluster), s.cluster); err != nil {
			return err
		}
		return testenv.ErrorIf(s.cluster.Status.PowerState != string(want), "found %q: %+v", s.cluster.Status.PowerState, s.cluster.Status.Conditions)
	})
	return time.Now()
}

func (s *machineStory) ask(t *testing.T, state hivev1.PowerState) time.Time {
	t.Helper()
	asked := time.Now()
	testenv.ExpectPatched(t, s.env, s.cluster, func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = state })
	return asked
}

func (s *machineStory) hibernate(t *testing.T, round int) {
	t.Helper()
	asked := s.ask(t, hivev1.PowerStateHibernating)
	var off time.Time
	testenv.EventuallyWithin(t, patience, "every guest is off", func() error {
		for _, g := range s.guests {
			if findGuest(t, g.name) != 0 {
				return fmt.Errorf("guest %s runs", g.name)
			}
		}
		off = time.Now()
		return nil
	})
	told := s.awaitState(t, hivev1.PowerStateHibernating)
	ordered := s.witness.firstAfter(procDomainShutdown, asked)
	overhead := ordered.Sub(asked) + told.Sub(off)
	s.logf(t, "round %d: hibernation requested; ACPI shutdown sent after %s; the guests took %s; reported Hibernating %s later; time due to Torpor %s",
		round, seconds(ordered.Sub(asked)), seconds(off.Sub(ordered)), seconds(told.Sub(off)), seconds(overhead))
}

func (s *machineStory) resume(t *testing.T, round int) {
	t.Helper()
	asked := s.ask(t, hivev1.PowerStateRunning)
	var ready time.Time
	for _, g := range s.guests {
		ready = s.awaitNode(t, g.name, asked)
	}
	told := s.awaitState(t, hivev1.PowerStateRunning)
	ordered := s.witness.firstAfter(procDomainCreate, asked)
	s.logf(t, "round %d: resume requested; started after %s; the nodes were Ready %s later; reported Running %s after that; time due to Torpor %s",
		round, seconds(ordered.Sub(asked)), seconds(ready.Sub(ordered)), seconds(told.Sub(ready)), seconds(ordered.Sub(asked)+told.Sub(ready)))
	s.expectData(t, asked)
}

// expectData expects the Pod to become Ready again, with the data from its first start.
func (s *machineStory) expectData(t *testing.T, since time.Time) {
	t.Helper()
	s.awaitPods(t, since)
	if got := s.exec(t, "cat", "/data/first"); got != s.first {
		t.Fatalf("expected the data %q to be kept, found %q", s.first, got)
	}
	s.logf(t, "the StatefulSet is Ready again with its data; starts so far: %d", len(strings.Fields(s.exec(t, "cat", "/data/starts"))))
}

// survivePowerCut kills a guest that should run, and expects Torpor to start it again.
func (s *machineStory) survivePowerCut(t *testing.T) {
	t.Helper()
	cut := time.Now()
	cutPower(t, s.guests[0].name)
	s.awaitNode(t, s.guests[0].name, cut.Add(time.Second))
	ordered := s.witness.firstAfter(procDomainCreate, cut)
	s.logf(t, "power cut at %s; started again after %s; Ready after %s", s.guests[0].name, seconds(ordered.Sub(cut)), seconds(time.Since(cut)))
	s.expectData(t, cut)
	s.awaitState(t, hivev1.PowerStateRunning)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
