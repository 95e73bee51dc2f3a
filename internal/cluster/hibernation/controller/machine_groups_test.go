// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// groupedCluster is a cluster with one machine outside of groups, and two members of a group.
type groupedCluster struct {
	*testCluster
	group  string
	before testenv.CloudGroup
}

// newGroupedCluster creates a cluster whose group has a minimum and a maximum size, and two suspended processes.
func (e *env) newGroupedCluster(t *testing.T, mode string) *groupedCluster {
	t.Helper()
	return e.newGroupedClusterAt(t, e.cloud, mode)
}

// newGroupedClusterAt creates the group before the cluster, because a poll from before the group would not return it.
func (e *env) newGroupedClusterAt(t *testing.T, cloud *testenv.CloudServer, mode string, edit ...func(s *groupedCluster)) *groupedCluster {
	t.Helper()
	s := &groupedCluster{}
	var ids []string
	made := e.newCluster(t, func(r *clusterSetup) {
		infraID := r.cd.Spec.ClusterMetadata.InfraID
		r.cloud, r.machines, r.cd.Annotations = cloud, 0, map[string]string{hivev1.MachineGroupsAnnotation: mode}
		for _, name := range []string{"-master-0", "-worker-a", "-worker-b"} {
			ids = append(ids, cloud.RunInstance(t, infraID, infraID+name))
		}
		testenv.Eventually(t, "the machines run", func() error { return cloud.ExpectState(t, infraID, "running") })
		s.group = "workers-of-" + infraID
		for _, id := range ids[1:] {
			cloud.JoinGroup(t, id, s.group)
		}
		cloud.CallAutoScaling(t, "UpdateAutoScalingGroup", s.group, "MinSize", "1", "MaxSize", "5")
		cloud.CallAutoScaling(t, "SuspendProcesses", s.group, "ScalingProcesses.member.1", "AZRebalance", "ScalingProcesses.member.2", "AddToLoadBalancer")
		s.testCluster = &testCluster{cloud: cloud, ids: ids}
		for _, change := range edit {
			change(s)
		}
		s.before = cloud.DescribeGroup(t, s.group)
	})
	made.ids = ids
	s.testCluster = made
	return s
}

// terminated returns the ids of the machines that were terminated.
func (s *groupedCluster) terminated(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, i := range s.cloud.ListInstances(t, s.infraID) {
		if i.State == "terminated" || i.State == "shutting-down" {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func (s *groupedCluster) expectGroup(t *testing.T, want testenv.CloudGroup) {
	t.Helper()
	testenv.ExpectEqual(t, "the group", fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", s.cloud.DescribeGroup(t, s.group)))
}

// awaitHibernation waits until the cluster reports that it hibernates.
func (s *groupedCluster) awaitHibernation(t *testing.T) {
	t.Helper()
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, settledCondition(hivev1.PowerStateHibernating))
}

func (s *groupedCluster) awaitResume(t *testing.T) {
	t.Helper()
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, settledCondition(hivev1.PowerStateRunning))
	if cd := s.get(t); len(cd.Status.Hibernation.MachineGroups) > 0 || meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterDegradedCondition) {
		t.Errorf("expected a whole cluster and no recorded group, found %+v and %+v", cd.Status.Hibernation, cd.Status.Conditions)
	}
}

// TestMachineGroups hibernates clusters with groups that replace stopped members at once.
func TestMachineGroups(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	e.startManager(t, clouds())
	for name, scenario := range map[string]func(*testing.T, *env){
		"suspended groups are restored":                                          suspendsGroups,
		"groups that are scaled to zero are restored":                            scalesGroups,
		"process that is resumed during the hibernation is suspended again":      holdsGroupsAgain,
		"unknown value of the annotation is refused":                             refusesUnknownOption,
		"EKS node group is scaled to zero and restored":                          scalesNodeGroups,
		"EKS node group is scaled after an update in progress":                   awaitsUpdateOfNodeGroup,
		"missing EKS permissions prevent the stop":                               refusesNodeGroupWithoutRights,
		"cancelled hibernation restores an EKS node group that is being updated": releasesNodeGroupOfCancelledHibernation,
		"missing right to suspend processes prevents the stop":                   stopsNothingWithoutRights,
		"cancelled hibernation restores the groups":                              releasesGroupsOfCancelledHibernation,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, e)
		})
	}
}

func suspendsGroups(t *testing.T, e *env) {
	t.Helper()
	s := e.newGroupedCluster(t, hivev1.MachineGroupsSuspend)
	s.awaitHibernation(t)
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "stopped"))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "True", hivev1.HibernatingHibernationReason, []string{"suspended machine groups: " + s.group}})
	s.awaitResume(t)
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "terminated machines", 0, len(s.terminated(t)))
}

func scalesGroups(t *testing.T, e *env) {
	t.Helper()
	s := e.newGroupedCluster(t, hivev1.MachineGroupsScaleToZero)
	s.awaitHibernation(t)
	asleep := s.before
	asleep.Min, asleep.Desired, asleep.Members = 0, 0, 0
	s.expectGroup(t, asleep)
	gone := s.terminated(t)
	slices.Sort(gone)
	testenv.ExpectEqual(t, "terminated machines", fmt.Sprint(slices.Sorted(slices.Values(s.ids[1:]))), fmt.Sprint(gone))
	s.awaitResume(t)
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "terminated machines", 2, len(s.terminated(t)))
}

// holdsGroupsAgain resumes one process of a group during the hibernation.
func holdsGroupsAgain(t *testing.T, e *env) {
	t.Helper()
	s := e.newGroupedCluster(t, hivev1.MachineGroupsSuspend)
	s.awaitHibernation(t)
	s.cloud.CallAutoScaling(t, "ResumeProcesses", s.group, "ScalingProcesses.member.1", "AlarmNotification")
	s.touchAnnotation(t, 1)
	testenv.Eventually(t, "the process is suspended again", func() error {
		found := s.cloud.DescribeGroup(t, s.group).Suspended
		return testenv.ErrorIf(!slices.Contains(found, "AlarmNotification"), "found %v", found)
	})
	s.awaitResume(t)
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "terminated machines", 0, len(s.terminated(t)))
}

func refusesUnknownOption(t *testing.T, e *env) {
	t.Helper()
	s := e.newGroupedCluster(t, "scale-to-one")
	s.setPowerState(t, hivev1.PowerStateHibernating)
	const text = `Expected suspend or scale-to-zero in the annotation torpor.dev/machine-groups, found "scale-to-one"`
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{text}})
	testenv.ExpectNoError(t, s.hasMessage(hivev1.ClusterHibernationPossibleCondition, text))
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
	s.expectGroup(t, s.before)
}

func (s *groupedCluster) hasMessage(kind, text string) error {
	found := meta.FindStatusCondition(s.history.newest().Status.Conditions, kind)
	return (expectedCondition{kind, "False", found.Reason, []string{text}}).check(s.history.newest())
}

// slowUpdate is the duration of a node group's update that lasts for several polls.
const slowUpdate = 5 * time.Second

// newNodeGroupCluster creates a cluster whose group belongs to a node group of EKS.
func (e *env) newNodeGroupCluster(t *testing.T, cloud *testenv.CloudServer) *groupedCluster {
	t.Helper()
	return e.newGroupedClusterAt(t, cloud, hivev1.MachineGroupsScaleToZero, func(s *groupedCluster) { s.cloud.MarkNodeGroup(t, s.ids[1], s.group) })
}

func scalesNodeGroups(t *testing.T, e *env) {
	t.Helper()
	s := e.newNodeGroupCluster(t, e.cloud)
	before := s.cloud.DescribeNodeGroup(t, s.group)
	s.awaitHibernation(t)
	asleep := before
	asleep.Size.Min, asleep.Size.Desired = 0, 0
	testenv.ExpectEqual(t, "the node group", fmt.Sprint(asleep), fmt.Sprint(s.cloud.DescribeNodeGroup(t, s.group)))
	testenv.ExpectEqual(t, "terminated machines", 2, len(s.terminated(t)))
	s.awaitResume(t)
	testenv.ExpectEqual(t, "the node group", fmt.Sprint(before), fmt.Sprint(s.cloud.DescribeNodeGroup(t, s.group)))
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "terminated machines", 2, len(s.terminated(t)))
}

// awaitsUpdateOfNodeGroup hibernates a cluster whose owner has just resized a node group.
func awaitsUpdateOfNodeGroup(t *testing.T, e *env) {
	t.Helper()
	s := e.newNodeGroupCluster(t, e.cloud)
	s.cloud.UpdateNodeGroup(t, s.group, `{"minSize":0,"desiredSize":1}`)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.touchUntil(t, settledCondition(hivev1.PowerStateHibernating))
	s.awaitResume(t)
	found := s.cloud.DescribeNodeGroup(t, s.group)
	testenv.ExpectEqual(t, "the size after the resume", "{0 5 1}", fmt.Sprint(found.Size))
}

// touchUntil causes passes until a condition is met. A cluster that cannot hibernate is otherwise polled at long intervals.
func (s *groupedCluster) touchUntil(t *testing.T, want expectedCondition) {
	t.Helper()
	n := 0
	testenv.Eventually(t, "the condition", func() error {
		n++
		s.touchAnnotation(t, n)
		return s.hasCondition(want)
	})
}

// releasesNodeGroupOfCancelledHibernation cancels the hibernation while EKS still returns the former size. In its
// cloud, an update takes longer than the interval between polls.
func releasesNodeGroupOfCancelledHibernation(t *testing.T, e *env) {
	t.Helper()
	s := e.newNodeGroupCluster(t, testenv.StartCloud(t, "--access-keys", testenv.AccessKey))
	s.cloud.SetLatency(t, slowUpdate, machineLatency)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	testenv.Eventually(t, "EKS updates the node group", func() error {
		found := s.cloud.DescribeNodeGroup(t, s.group)
		return testenv.ErrorIf(found.Status != "UPDATING" && found.Size.Desired > 0, "found %+v", found)
	})
	s.awaitResume(t)
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "the status of the node group", "ACTIVE", s.cloud.DescribeNodeGroup(t, s.group).Status)
}

// refusesNodeGroupWithoutRights uses a separate cloud, because a fault affects all clusters of a cloud.
func refusesNodeGroupWithoutRights(t *testing.T, e *env) {
	t.Helper()
	s := e.newNodeGroupCluster(t, testenv.StartCloud(t, "--access-keys", testenv.AccessKey))
	s.cloud.InjectFault(t, testenv.CloudFault{Action: "DescribeNodegroup", Code: "AccessDeniedException", Message: "Not authorized to perform eks:DescribeNodegroup."})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{s.group, "eks:DescribeNodegroup"}})
	testenv.ExpectNoError(t, s.hasMessage(hivev1.ClusterHibernationPossibleCondition, "EKS"))
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hivev1.MachineGroupsAnnotation, hivev1.MachineGroupsSuspend))
	s.awaitCondition(t, settledCondition(hivev1.PowerStateHibernating))
	s.awaitResume(t)
	s.expectGroup(t, s.before)
	testenv.ExpectEqual(t, "terminated machines", 0, len(s.terminated(t)))
}

// stopsNothingWithoutRights uses a separate cloud, because a fault affects all clusters of a cloud.
func stopsNothingWithoutRights(t *testing.T, e *env) {
	t.Helper()
	s := e.newGroupedClusterAt(t, testenv.StartCloud(t, "--access-keys", testenv.AccessKey), hivev1.MachineGroupsSuspend)
	s.cloud.InjectFault(t, testenv.CloudFault{Action: "SuspendProcesses", Code: "AccessDenied", Message: "Not authorized to perform autoscaling:SuspendProcesses."})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{"autoscaling:SuspendProcesses", s.group}})
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
	s.expectGroup(t, s.before)
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, settledCondition(hivev1.PowerStateRunning))
	s.expectGroup(t, s.before)
}

// releasesGroupsOfCancelledHibernation cancels the hibernation while a machine outside of the group is still
// stopping.
func releasesGroupsOfCancelledHibernation(t *testing.T, e *env) {
	t.Helper()
	for _, mode := range []string{hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero} {
		s := e.newGroupedCluster(t, mode)
		s.setPowerState(t, hivev1.PowerStateHibernating)
		testenv.Eventually(t, "the group is held", func() error {
			found := s.cloud.DescribeGroup(t, s.group)
			return testenv.ErrorIf(found.Desired > 0 && len(found.Suspended) == len(s.before.Suspended), "found %+v", found)
		})
		s.awaitResume(t)
		s.expectGroup(t, s.before)
	}
}

// killSwitch kills a manager at an action, as kill -9 would: no later request of the manager is sent.
type killSwitch struct {
	mu sync.Mutex
	// spared is the number of actions before the kill. isOfCloud is true if the manager must not be killed at a status
	// write.
	spared    int
	isOfCloud bool
	// lost contains the actions that were dropped at their last occurrence. The next time, such an action is done
	// before its manager is killed.
	lost   map[string]bool
	killed chan struct{}
	isDead bool
	act    string
	// isAfter is true if the action act was done before the kill.
	isAfter bool
}

var errKilled = errors.New("the manager was killed")

// statusAct is the action that writes the status.
const statusAct = "write the status"

// perform does an action of a running manager. Unless the action is spared, it kills the manager before or after the
// action.
func (k *killSwitch) perform(name string, do func() error) error {
	k.mu.Lock()
	isSpared := !k.isDead && (k.spared > 0 || k.isOfCloud && name == statusAct)
	if isSpared {
		k.spared--
		k.mu.Unlock()
		return do()
	}
	defer k.mu.Unlock()
	if k.isDead {
		return errKilled
	}
	k.isDead, k.act, k.isAfter = true, name, k.lost[name]
	k.lost[name] = !k.lost[name]
	defer close(k.killed)
	if !k.isAfter {
		return errKilled
	}
	return errors.Join(do(), errKilled)
}

// mortalCloud kills the manager when it sends orders.
type mortalCloud struct {
	*aws.Actuator
	kill *killSwitch
}

// ChangeGroups implements actuator.GroupActuator.
func (c mortalCloud) ChangeGroups(ctx context.Context, t actuator.Target, changes []actuator.GroupChange) error {
	return c.kill.perform("change groups", func() error { return c.Actuator.ChangeGroups(ctx, t, changes) })
}

// StopAll implements actuator.BatchActuator.
func (c mortalCloud) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return c.orderAll("stop", clusters, func() []error { return c.Actuator.StopAll(ctx, t, clusters) })
}

// StartAll implements actuator.BatchActuator.
func (c mortalCloud) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return c.orderAll("start", clusters, func() []error { return c.Actuator.StartAll(ctx, t, clusters) })
}

func (c mortalCloud) orderAll(name string, clusters [][]string, do func() []error) []error {
	err := c.kill.perform(name, func() error { return errors.Join(do()...) })
	return slices.Repeat([]error{err}, len(clusters))
}

// mortalClient kills the manager when it writes a status or pauses a Cluster.
type mortalClient struct {
	client.Client
	kill *killSwitch
}

// Patch implements client.Client. Only pauses of Clusters count as actions.
func (c mortalClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if _, isCluster := obj.(*unstructured.Unstructured); !isCluster {
		return c.Client.Patch(ctx, obj, patch, opts...)
	}
	return c.kill.perform("change the pause of the Cluster", func() error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

// Status implements client.Client.
func (c mortalClient) Status() client.SubResourceWriter {
	return mortalStatus{SubResourceWriter: c.SubResource("status"), kill: c.kill}
}

type mortalStatus struct {
	client.SubResourceWriter
	kill *killSwitch
}

// Patch implements client.SubResourceWriter.
func (c mortalStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.kill.perform(statusAct, func() error { return c.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}

// startMortalManager runs a manager that kill can end.
func (e *env) startMortalManager(t *testing.T, kill *killSwitch) (stop func()) {
	t.Helper()
	cloud, ok := clouds()["aws"].(*aws.Actuator)
	if !ok {
		t.Fatal("expected the actuator of AWS")
	}
	setup := Controller{Actuators: map[string]actuator.Actuator{"aws": mortalCloud{cloud, kill}}, Clock: clock.RealClock{}, Metrics: NewMetrics()}.SetupWithManager
	return testenv.StartManager(t, e.Environment, setup, func(o *manager.Options) {
		o.Logger = e.log.Logger(9)
		o.NewClient = func(cfg *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.New(cfg, o)
			return mortalClient{c, kill}, err
		}
	})
}

// TestManagersThatDieAtEachActKeepGroups lets each manager do one action, and kills it before or after the action.
// The cluster still hibernates and resumes, and its group ends in its earlier state.
func TestManagersThatDieAtEachActKeepGroups(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(*testing.T, *env) *groupedCluster{
		hivev1.MachineGroupsSuspend: func(t *testing.T, e *env) *groupedCluster {
			t.Helper()
			return e.newGroupedCluster(t, hivev1.MachineGroupsSuspend)
		},
		hivev1.MachineGroupsScaleToZero: func(t *testing.T, e *env) *groupedCluster {
			t.Helper()
			return e.newGroupedCluster(t, hivev1.MachineGroupsScaleToZero)
		},
		"scale-to-zero of a node group": func(t *testing.T, e *env) *groupedCluster { t.Helper(); return e.newNodeGroupCluster(t, e.cloud) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.cloud.SetLatency(t, machineLatency, machineLatency)
			s := create(t, e)
			mode := s.get(t).Annotations[hivev1.MachineGroupsAnnotation]
			s.setPowerState(t, hivev1.PowerStateHibernating)
			e.killUntilSettled(t, s.testCluster, hivev1.PowerStateHibernating, 1, nil)
			s.setPowerState(t, hivev1.PowerStateRunning)
			e.killUntilSettled(t, s.testCluster, hivev1.PowerStateRunning, 0, nil)
			s.expectGroup(t, s.before)
			most := map[string]int{hivev1.MachineGroupsSuspend: 0, hivev1.MachineGroupsScaleToZero: 2}[mode]
			testenv.ExpectEqual(t, "terminated machines", most, len(s.terminated(t)))
			testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))
		})
	}
}

// killUntilSettled starts managers until the cluster reports the power state with the given number of recorded
// groups. Each action is dropped once before it is done. If target is not nil, the cluster's API server also kills
// managers.
func (e *env) killUntilSettled(t *testing.T, s *testCluster, state hivev1.PowerState, groups int, target *mortalTarget) (acts map[string]int) {
	t.Helper()
	acts = map[string]int{}
	lost := map[string]bool{}
	for n := 0; ; n++ {
		kill := &killSwitch{lost: lost, killed: make(chan struct{})}
		if target != nil {
			target.kill.Store(kill)
		}
		stop := e.startMortalManager(t, kill)
		isSettled := false
		testenv.Eventually(t, "an act of a manager, or a settled cluster", func() error {
			select {
			case <-kill.killed:
				return nil
			default:
			}
			isSettled = s.hasCondition(settledCondition(state)) == nil && len(s.get(t).Status.Hibernation.MachineGroups) == groups
			return testenv.ErrorIf(!isSettled, "the cluster is not %s", state)
		})
		stop()
		t.Logf("manager %d: %s (carried out: %t), settled: %t", n, kill.act, kill.isAfter, isSettled)
		if isSettled {
			return acts
		}
		acts[kill.act]++
	}
}
