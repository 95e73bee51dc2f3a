// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// CloudSecret is the name of the credentials Secret of a HibernationStory.
	CloudSecret = "cloud"
	// ChangeTime is how long a machine of a simulated platform takes to stop or to start in a HibernationStory.
	ChangeTime = time.Second
	// storyMachines is the number of machines of the cluster.
	storyMachines = 3
	// A transition may take worstShare times as long as the platform alone needs, plus worstOverhead.
	worstShare, worstOverhead = 10, 2 * time.Minute
)

// PlatformCluster is a cluster at a platform, real or simulated, as in the contract of actuators.
type PlatformCluster interface {
	Actuator() actuator.Actuator
	Target() actuator.Target
	Create(t *testing.T, n int) []string
}

// HibernationStory is a cluster at a platform that hibernates and resumes. The API server of the hub also serves as the
// API server of the cluster, which has one live node.
type HibernationStory struct {
	// Counterpart is the name of the platform's implementation, such as "double" or "Docker".
	Counterpart string
	Cluster     PlatformCluster
	// Platform is the platform of the machines. The credentials of the cluster's target are in CloudSecret.
	Platform hivev1.Platform
	// Metadata identifies the machines. If it is empty, the target's infraID is used. The kubeconfig is set by the
	// story.
	Metadata hivev1.ClusterMetadata
	// Setup sets up the controller of hibernation.
	Setup func(manager.Manager) error
	// Disturb, if set, changes machines when the cluster reports a state.
	Disturb func(state hivev1.PowerState, ids []string)
}

// PlatformTimes holds how long it takes to stop and start all machines of a cluster: until the cluster reports it,
// and, if the actuator is called directly, until the platform reports it.
type PlatformTimes struct {
	HibernateSeconds         float64 `json:"hibernate_seconds"`
	StopSeconds              float64 `json:"platform_stop_seconds"`
	HibernateOverheadSeconds float64 `json:"hibernate_overhead_seconds"`
	ResumeSeconds            float64 `json:"resume_seconds"`
	StartSeconds             float64 `json:"platform_start_seconds"`
	ResumeOverheadSeconds    float64 `json:"resume_overhead_seconds"`
}

// prepare creates the API server, the cluster and its three machines.
func (s HibernationStory) prepare(t *testing.T) (*Environment, *hivev1.ClusterDeployment, []string) {
	t.Helper()
	env := StartAPIServer(t)
	env.InstallCRDs(t, filepath.Join(crdFolder(t), "hive.openshift.io_clusterdeployments.yaml"))
	ids, name := s.Cluster.Create(t, storyMachines), client.ObjectKey{Namespace: env.CreateNamespace(t), Name: "sleepy"}
	target := s.Cluster.Target()
	kubeconfig, err := os.ReadFile(env.KubeconfigPath(t))
	ExpectNoError(t, err)
	for secret, data := range map[string]map[string][]byte{CloudSecret: target.Credentials, "admin": {"kubeconfig": kubeconfig}} {
		env.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: secret}, Data: data})
	}
	cd := BuildClusterDeployment(name, "", "")
	cd.Spec.Platform, cd.Spec.ClusterMetadata, cd.Spec.PowerState = s.Platform, s.Metadata.DeepCopy(), hivev1.PowerStateRunning
	cd.Spec.ClusterMetadata.InfraID = cmp.Or(s.Metadata.InfraID, target.InfraID)
	cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = "admin"
	if listed := cd.Spec.Platform.BareMetal; listed != nil {
		for _, m := range target.Machines {
			listed.Machines = append(listed.Machines, hivev1.BareMetalMachine{Name: m.Name, BMC: m.Address})
		}
	}
	env.ExpectCreated(t, cd)
	return env, cd, ids
}

// RunWithMembers requests a hibernation of a cluster of which two of three machines are members of a group. It expects
// that no machine is stopped, and that the messages of the conditions Hibernating and HibernationPossible contain the
// group's name.
func (s HibernationStory) RunWithMembers(t *testing.T, joinGroup func(t *testing.T, id, group string)) {
	t.Helper()
	const group = "workers-a"
	env, cd, ids := s.prepare(t)
	for _, id := range ids[:2] {
		joinGroup(t, id, group)
	}
	before := s.expectIDs(t)
	StartManager(t, env, s.Setup)
	ExpectPatched(t, env, cd, func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = hivev1.PowerStateHibernating })
	Eventually(t, "both conditions name the group", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		for kind, reason := range map[string]string{
			hivev1.ClusterHibernatingCondition: hivev1.UnsupportedHibernationReason, hivev1.ClusterHibernationPossibleCondition: "",
		} {
			found := meta.FindStatusCondition(cd.Status.Conditions, kind)
			isRight := found != nil && found.Status == metav1.ConditionFalse && strings.Contains(found.Message, group)
			if !isRight || reason != "" && found.Reason != reason {
				return fmt.Errorf("%s: expected False and %s, found %+v", kind, group, found)
			}
		}
		return nil
	})
	ExpectNoError(t, s.expectMachines(t, actuator.Running))
	ExpectEqual(t, "machines, of which a group would replace a stopped one", before, s.expectIDs(t))
}

// expectIDs returns the IDs of the cluster's machines.
func (s HibernationStory) expectIDs(t *testing.T) []string {
	t.Helper()
	machines, err := s.Cluster.Actuator().Observe(t.Context(), s.Cluster.Target())
	ExpectNoError(t, err)
	var ids []string
	for _, m := range machines {
		ids = append(ids, m.ID)
	}
	return ids
}

// Run hibernates and resumes a cluster with three machines, and adds a row to the table of platforms.
func (s HibernationStory) Run(t *testing.T) {
	t.Helper()
	env, cd, ids := s.prepare(t)
	lease := createLivingNode(t, env)
	stopped := s.measurePlatform(t, ids, actuator.Stopped, s.Cluster.Actuator().Stop)
	started := s.measurePlatform(t, ids, actuator.Running, s.Cluster.Actuator().Start)
	StartManager(t, env, s.Setup)
	measure := func(want hivev1.PowerState, state actuator.MachineState) time.Duration {
		took := awaitState(t, env, cd, lease, want)
		ExpectNoError(t, s.expectMachines(t, state))
		if s.Disturb != nil {
			s.Disturb(want, ids)
		}
		return took
	}
	measure(hivev1.PowerStateRunning, actuator.Running)
	hibernated := measure(hivev1.PowerStateHibernating, actuator.Stopped)
	resumed := measure(hivev1.PowerStateRunning, actuator.Running)
	if hibernated > worstShare*stopped+worstOverhead || resumed > worstShare*started+worstOverhead {
		t.Errorf("hibernated in %s and resumed in %s, and the platform takes %s and %s", hibernated, resumed, stopped, started)
	}
	s.saveTimes(t, PlatformTimes{
		HibernateSeconds: hibernated.Seconds(), StopSeconds: stopped.Seconds(), HibernateOverheadSeconds: (hibernated - stopped).Seconds(),
		ResumeSeconds: resumed.Seconds(), StartSeconds: started.Seconds(), ResumeOverheadSeconds: (resumed - started).Seconds(),
	})
}

// measurePlatform stops or starts the machines directly, and returns how long that takes according to the platform.
func (s HibernationStory) measurePlatform(t *testing.T, ids []string, want actuator.MachineState, order func(context.Context, actuator.Target, []string) error) time.Duration {
	t.Helper()
	began := time.Now()
	ExpectNoError(t, order(t.Context(), s.Cluster.Target(), ids))
	Eventually(t, "all machines are "+string(want), func() error { return s.expectMachines(t, want) })
	return time.Since(began)
}

func (s HibernationStory) expectMachines(t *testing.T, want actuator.MachineState) error {
	t.Helper()
	machines, err := s.Cluster.Actuator().Observe(t.Context(), s.Cluster.Target())
	for _, m := range machines {
		if m.State != want || m.HoldsCapacity {
			return fmt.Errorf("expected machine %s to be %s, found %+v", m.ID, want, m)
		}
	}
	return errors.Join(err, ErrorIf(len(machines) != storyMachines, "expected %d machines, found %d", storyMachines, len(machines)))
}

// saveTimes adds a row to the table of platforms, and logs the whole table.
func (s HibernationStory) saveTimes(t *testing.T, row PlatformTimes) {
	t.Helper()
	all := MergeFigures(t, "platforms.json", map[string]PlatformTimes{s.Cluster.Actuator().Platform() + " (" + s.Counterpart + ")": row})
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s %9s %9s %9s   %9s %9s %9s\n", "platform", "hibernate", "its own", "overhead", "resume", "its own", "overhead")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		fmt.Fprintf(&table, "%-26s %7.2f s %7.2f s %7.2f s   %7.2f s %7.2f s %7.2f s\n", name,
			r.HibernateSeconds, r.StopSeconds, r.HibernateOverheadSeconds, r.ResumeSeconds, r.StartSeconds, r.ResumeOverheadSeconds)
	}
	t.Logf("%d machines of a cluster at each platform:\n%s", storyMachines, strings.TrimSuffix(table.String(), "\n"))
}

// awaitState requests a power state, and returns how long it takes until the cluster reports it.
func awaitState(t *testing.T, env *Environment, cd *hivev1.ClusterDeployment, lease *coordinationv1.Lease, want hivev1.PowerState) time.Duration {
	t.Helper()
	asked := time.Now()
	ExpectPatched(t, env, cd, func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = want })
	Eventually(t, "the cluster is "+string(want), func() error {
		renewed := lease.DeepCopy()
		renewed.Spec.RenewTime = new(metav1.NowMicro())
		if err := env.Client.Patch(t.Context(), renewed, client.MergeFrom(lease)); err != nil {
			return fmt.Errorf("renew the lease of the node: %w", err)
		}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		return ErrorIf(cd.Status.PowerState != string(want), "found %q: %+v", cd.Status.PowerState, cd.Status.Conditions)
	})
	return time.Since(asked)
}

// createLivingNode creates the only node of the cluster, and the Lease that shows that the node is alive.
func createLivingNode(t *testing.T, env *Environment) *coordinationv1.Lease {
	t.Helper()
	const name = "sleepy-node"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	Eventually(t, "a node with a lease", func() error {
		if err := env.Client.Create(t.Context(), node); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create the node: %w", err)
		}
		return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), lease))
	})
	return lease
}
