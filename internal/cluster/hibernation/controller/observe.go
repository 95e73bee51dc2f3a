// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/cloudcalls"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// maxFrequentLook is the duration of a failed poll above which a cluster is polled less often.
const maxFrequentLook = 3 * time.Second

// readKubeconfig reads a kubeconfig for the pool.
func (c Controller) readKubeconfig(ctx context.Context, namespace, secret string) ([]byte, error) {
	data, err := c.readSecret(ctx, namespace, secret)
	if err != nil {
		return nil, &targetcluster.KubeconfigError{Message: explainSecretError(secret, err).Message}
	}
	return data[kubeconfigKey], nil
}

// clusterObservation is an observation and the data that actions need.
type clusterObservation struct {
	hibernation.Observed
	objectFacts
	name types.NamespacedName
	// moment is the time of the observation for the savings.
	moment   savings.Moment
	actuator actuator.Actuator
	target   actuator.Target
	requests []certificatesv1.CertificateSigningRequest
	verdicts []csr.Verdict
	// version is the cluster's version; empty if it was not read or does not exist.
	version string
	// clockAhead is how far the cluster's clock is ahead of the hub's.
	clockAhead time.Duration
	// approvals is nil while certificate requests are not evaluated.
	approvals *resumeApprovals
	// ownerInterval is the shortest time until the next pass if the machines belong to another ClusterDeployment; zero
	// otherwise.
	ownerInterval time.Duration
	// replaced are the names of Machines that were deleted since the last pass.
	replaced []string
	// firstLook is nil if no resume is recorded.
	firstLook *firstLook
	// cluster is the Cluster of Cluster API on the hub; nil if none exists. healthChecks are the cluster's
	// MachineHealthChecks.
	cluster      *unstructured.Unstructured
	healthChecks []targetcluster.HealthCheck
	// check contains the problems that may affect a hibernation; nil before the first survey.
	check *hivev1.HibernationCheck
}

// observe reads exactly the facts that the decision depends on. The failure to read a cloud or cluster is part of the
// observation, not an error.
func (c Controller) observe(ctx context.Context, cd *hivev1.ClusterDeployment) (*clusterObservation, error) {
	facts := readFacts(cd)
	seen := &clusterObservation{Observed: c.observeObject(cd, facts), objectFacts: facts, name: client.ObjectKeyFromObject(cd)}
	seen.moment = c.Metrics.saved.Observe(cd.UID, cd.Status.Savings, seen.Now)
	if seen.declaredVersion == "" && c.pool.IsPlain(seen.name) {
		seen.Incompatible, seen.HasNoVersion = "", true // The minimum version applies to OpenShift only.
	}
	if err := c.observeFirstSync(ctx, cd, seen); err != nil {
		return nil, err
	}
	if seen.IsInfraDisabled {
		c.forgetMachines(seen.name) // Otherwise its account would continue to list the machines.
	}
	if hibernation.NeedsCloud(seen.Observed) && c.findTarget(ctx, cd, seen) {
		if err := c.observeCloud(ctx, cd, seen); err != nil {
			return nil, err
		}
		if err := c.clusterAPI.observe(ctx, seen); err != nil {
			return nil, err
		}
	}
	owner, err := c.findMachineOwner(ctx, cd, seen)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		seen.Machines, seen.ownerInterval = nil, accountTTL
		seen.Invalid = fmt.Sprintf("Expected one ClusterDeployment for the machines of %s, found that the machines belong to the older ClusterDeployment %s/%s; delete one of the two, or correct spec.clusterMetadata",
			seen.platform.Machines, owner.Namespace, owner.Name)
	}
	seen.check = preflight.WithMachines(cd.Status.HibernationCheck, cd.Status.HibernationCheck, seen.Machines)
	seen.noteCheck(seen.check)
	seen.approvals = c.approvalLog.ofResume(cd.UID, seen.Observed)
	seen.firstLook = c.firstLooks.ofResume(cd.UID, seen.Observed)
	switch {
	case hibernation.NeedsCluster(seen.Observed):
		return seen, c.observeCluster(cd, seen)
	case hibernation.WillNeedCluster(seen.Observed):
		c.pool.Prepare(questionOf(cd, seen))
	default:
		c.pool.Rest(seen.name)
	}
	return seen, nil
}

// observeFirstSync reads whether the SyncSets of a new cluster have been applied. Without a controller that maintains
// the ClusterSync, the hibernation does not wait.
func (c Controller) observeFirstSync(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) error {
	deadline := hibernation.FirstSyncDeadline(cd)
	if !seen.Now.Before(deadline) || !hibernation.MayAwaitFirstSync(seen.Observed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var sync hiveinternalv1alpha1.ClusterSync
	err := c.live.Get(ctx, client.ObjectKeyFromObject(cd), &sync)
	switch {
	case k8serrors.IsNotFound(err), k8serrors.IsForbidden(err), meta.IsNoMatchError(err): // Most likely, no controller maintains the ClusterSync.
		return nil
	case err != nil:
		return fmt.Errorf("read the ClusterSync: %w", err)
	}
	if sync.Status.FirstSuccessTime == nil {
		seen.SyncAwaitedUntil = deadline
	}
	return nil
}

// findTarget determines the cluster's machines and credentials. It returns false if this fails with an error to
// report.
func (c Controller) findTarget(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) bool {
	platform := seen.platform
	seen.actuator = c.Actuators[platform.Name]
	seen.target = actuator.Target{
		InfraID: platform.Machines, Namespace: cd.Namespace, Region: platform.Region, Cloud: platform.Cloud,
		DiscardLocalDisks: platform.DiscardLocalDisks, FreesCapacity: platform.FreesCapacity,
	}
	for _, m := range platform.ListedMachines {
		seen.target.Machines = append(seen.target.Machines, actuator.ListedMachine{Name: m.Name, Address: m.BMC})
	}
	if platform.CredentialsSecretName == "" {
		seen.target.Role = &actuator.Role{Namespace: cd.Namespace}
		if role := platform.AssumeRole; role != nil {
			seen.target.Role.Name, seen.target.Role.ExternalID = role.RoleARN, role.ExternalID
		}
		return true
	}
	if seen.target.Credentials = c.accounts.Credentials(client.ObjectKeyFromObject(cd)); seen.target.Credentials != nil {
		return true
	}
	var err error
	if seen.target.Credentials, err = c.readSecret(ctx, cd.Namespace, platform.CredentialsSecretName); err != nil {
		seen.ObservationError = explainSecretError(platform.CredentialsSecretName, err)
	}
	return err == nil
}

const (
	// freshLookAge is the maximum age of a poll while a cluster is stopping or starting, or after a failed poll.
	// aftercareLookAge is the maximum age in the aftercare, and once a machine of a resuming cluster runs.
	freshLookAge     = 10 * time.Second
	aftercareLookAge = 30 * time.Second
	// asleepLookAge is unlimited: cloudcalls.Service polls clusters that are off in any case, and enqueues those with a
	// machine that is no longer off.
	asleepLookAge = time.Duration(math.MaxInt64)
)

// observeCloud reads the known state of the machines. If the state is too old, it requests a poll and returns
// reconcile.ErrPending.
func (c Controller) observeCloud(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) error {
	_, seen.CanChangeGroups = seen.actuator.(actuator.GroupActuator)
	wanted := cloudcalls.Cluster{
		Name: seen.name, Actuator: seen.actuator, Target: seen.target,
		WantsGroups: hibernation.NeedsGroups(seen.Observed), WantsSizes: hibernation.NeedsGroupSizes(seen.Observed),
	}
	if seen.Record != nil {
		for _, group := range seen.Record.MachineGroups {
			if hibernation.IsGroupOfCloud(group.Name) {
				wanted.Groups = append(wanted.Groups, group.Name)
			}
		}
	}
	look, isKnown := c.accounts.Look(ctx, wanted)
	if !isKnown || !look.IsAnswer && seen.Now.Sub(look.At) > maxLookAge(cd, seen.Observed, look) {
		c.accounts.RefreshMachines(seen.name)
		return reconcile.ErrPending
	}
	c.machineAccounts.storeLook(seen.name, look, seen.Now)
	if look.Err == nil {
		seen.Machines, seen.Groups = look.Machines, look.Groups
	} else {
		seen.ObservationError = explainCloudError(look.Err)
	}
	if r := look.Refused; r != nil && look.Err == nil && r.Verb.IsOfStop() == (seen.DesiredPowerState == hivev1.PowerStateHibernating) {
		seen.Refusal = &hibernation.OrderRefusal{ObservationError: *explainCloudError(r.Err), MachineIDs: r.MachineIDs}
	}
	return nil
}

// maxLookAge returns the maximum age of the poll that a pass may use. It is long for a settled cluster if the pass runs
// only by schedule.
func maxLookAge(cd *hivev1.ClusterDeployment, o hibernation.Observed, look cloudcalls.Snapshot) time.Duration {
	o.Machines, o.Groups = look.Machines, look.Groups
	switch {
	case look.Err == nil && hibernation.IsFollowed(o):
		return aftercareLookAge // Between passes, the machines are watched and the API server is probed.
	case look.Err != nil || !hibernation.IsPowerSettled(o) || cd.Status.PowerState != string(cmp.Or(o.DesiredPowerState, hivev1.PowerStateRunning)):
		return freshLookAge
	case look.IsUsed && !look.IsScheduled:
		return 0 // The object has changed, perhaps to fix a problem, so a new poll is needed.
	case hibernation.IsAsleep(o):
		return asleepLookAge
	case hibernation.IsInAftercare(o):
		return aftercareLookAge
	default:
		return cloudcalls.SettledLookAge
	}
}

func questionOf(cd *hivev1.ClusterDeployment, seen *clusterObservation) targetcluster.Question {
	q := targetcluster.Question{
		Cluster: seen.name, Secret: kubeconfigSecretName(cd), Override: hibernation.ReadServerOverride(cd), Depth: targetcluster.ReadAPI,
	}
	if seen.Record != nil && seen.Record.ResumeStartedAt != nil {
		q.WakeUp = seen.Record.ResumeStartedAt.Time
	}
	return q
}

// observeCluster reads the known state of the cluster itself. If parts are missing, it requests a poll and returns
// reconcile.ErrPending.
func (c Controller) observeCluster(cd *hivev1.ClusterDeployment, seen *clusterObservation) error {
	q := questionOf(cd, seen)
	switch {
	case hibernation.NeedsCertificateRequests(seen.Observed):
		q.Depth = targetcluster.ReadRequests
	case hibernation.NeedsMachines(seen.Observed):
		q.Depth = targetcluster.ReadMachines
	case hibernation.NeedsNodes(seen.Observed):
		q.Depth = targetcluster.ReadNodes
	}
	q.WantsPods = hibernation.NeedsPods(seen.Observed)
	seen.WereOperatorsMissing = wereOperatorsMissing(cd)
	isBeforeStop := hibernation.NeedsOperatorRecord(seen.Observed) && !seen.HasNoVersion
	q.WantsOperators = isBeforeStop || seen.WereOperatorsMissing && q.Depth == targetcluster.ReadRequests
	q.WantsHealthChecks = hibernation.NeedsHealthChecks(seen.Observed)
	q.WantsSurvey, q.PausesHealthChecks = c.wantsSurvey(cd, seen), seen.Options.MachineGroups == hivev1.MachineGroupsSuspend
	look, isKnown := c.pool.RequestLook(q)
	if !isKnown {
		return reconcile.ErrPending
	}
	seen.ApprovalError = seen.approvals.noteAnswers(look.Approvals)
	seen.noteReplacement(look)
	if seen.noteSilence(look) {
		return nil
	}
	if look.Survey != nil {
		seen.check = preflight.WithMachines(look.Survey.BuildCheck(cd.Status.HibernationCheck), cd.Status.HibernationCheck, seen.Machines)
		seen.noteCheck(seen.check)
		c.surveys.noteMade(seen.name, look.Survey.IsCutShort(), seen.Now)
	}
	if !seen.HasNoVersion && seen.declaredVersion == "" && c.pool.IsPlain(seen.name) {
		// The cluster was found not to be an OpenShift cluster. The next pass takes this into account from its start.
		c.pool.Enqueue(seen.name, false)
		return reconcile.ErrPending
	}
	seen.API, seen.version = hibernation.Reachable, look.Version
	seen.clockAhead = measureClock(look.Date, look.At)
	if seen.Nodes = look.Nodes; q.Depth >= targetcluster.ReadNodes {
		seen.firstLook.compare(seen.Observed)
	}
	seen.noteDrain(look)
	seen.noteHealthChecks(look)
	seen.noteReplaceable(look)
	if q.Depth < targetcluster.ReadRequests {
		seen.noteOperators(look)
		return nil
	}
	seen.judgeRequests(look)
	return c.observeOperators(q, seen, look)
}

// noteReplaceable records the machines that OpenShift replaces, unless the cluster should hibernate and the actuator
// cannot terminate them.
func (s *clusterObservation) noteReplaceable(look targetcluster.Look) {
	s.Replaceable, s.HasReadMachines = look.Replaceable, look.HasReadMachines
	if _, ok := s.actuator.(actuator.Terminator); !ok && s.DesiredPowerState == hivev1.PowerStateHibernating {
		s.Replaceable = nil
	}
}

// wantsSurvey reports whether this poll includes a survey of the cluster: when the survey is due, and before a
// hibernation that the findings may refuse.
func (c Controller) wantsSurvey(cd *hivev1.ClusterDeployment, seen *clusterObservation) bool {
	isDue := c.surveys.isDue(seen.name, cd.Status.HibernationCheck != nil, seen.Now)
	return hibernation.MayBeSurveyed(seen.Observed) && (isDue || hibernation.MayBeRefused(seen.Observed))
}

// noteSilence records why a cluster does not respond. It returns false if the cluster responds.
func (s *clusterObservation) noteSilence(look targetcluster.Look) bool {
	if look.Err == nil {
		return false
	}
	s.API, s.APIMessage = hibernation.Unreachable, targetcluster.DescribeError(look.Err)
	if !targetcluster.IsKubeconfigRefused(look.Err) {
		s.APIMessage += look.Override.Note()
	}
	s.IsAPIProblemLasting, s.IsAPIForbidden = targetcluster.IsLasting(look.Err), targetcluster.IsRefusedForGood(look.Err)
	s.IsAPICostly = targetcluster.IsTooCostly(look.Err) || look.Took > maxFrequentLook
	return true
}

// wereOperatorsMissing reports whether the last reported conditions list ClusterOperators that are not ready. If so,
// they are read with the next poll.
func wereOperatorsMissing(cd *hivev1.ClusterDeployment) bool {
	ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition)
	degraded := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterDegradedCondition)
	return ready != nil && ready.Reason == hivev1.WaitingForClusterOperatorsReason || degraded != nil && degraded.Reason == hivev1.ClusterOperatorsNotReadyReason
}

// observeOperators reads ClusterOperators only once an OpenShift cluster no longer waits for machines and nodes,
// because they cost more than a poll of its nodes.
func (c Controller) observeOperators(q targetcluster.Question, seen *clusterObservation, look targetcluster.Look) error {
	if !look.IsOpenShift || !hibernation.NeedsOperators(seen.Observed) {
		return nil
	}
	if !look.WantsOperators {
		q.WantsOperators = true
		c.pool.AskFurther(q, look)
		return reconcile.ErrPending
	}
	seen.noteOperators(look)
	return nil
}

func (s *clusterObservation) noteOperators(look targetcluster.Look) {
	if s.Operators = look.Operators; look.OperatorsErr != nil {
		s.OperatorsError = targetcluster.DescribeError(look.OperatorsErr)
	}
	for i := range s.Operators {
		if at := &s.Operators[i].LastSeen; !at.IsZero() { // Converts the time of the cluster's clock to the hub's.
			*at = at.Add(-s.clockAhead)
		}
	}
}

// replacementRest is the pause before another attempt to delete Machines or to change nodes. During the pause, stopped
// machines are started.
const replacementRest = 15 * time.Second

func (s *clusterObservation) noteReplacement(look targetcluster.Look) {
	s.replaced = look.Replaced
	if last := look.Replacement; last.Err != nil {
		s.ReplacementError = "the Machines cannot be deleted: " + targetcluster.DescribeError(last.Err)
		s.IsReplacementResting = s.Now.Sub(last.At) < replacementRest
	}
}

// noteDrain records the pods of workers, and the result of the last attempt to change nodes or to evict pods.
func (s *clusterObservation) noteDrain(look targetcluster.Look) {
	s.Pods = look.Pods
	if look.PodsErr != nil {
		s.Pods.Error = "pods cannot be read: " + targetcluster.DescribeError(look.PodsErr)
		s.Pods.IsForbidden = targetcluster.IsRefusedForGood(look.PodsErr)
	}
	if look.Drained.At.IsZero() {
		return
	}
	s.Pods.Kept = look.Drained.Kept
	for i := range s.Pods.Pods {
		s.Pods.Pods[i].IsRefused = look.Drained.Refused[targetcluster.NameOfPod(s.Pods.Pods[i])]
	}
	for i := range s.Nodes {
		s.Nodes[i].Cordon.IsRefused = look.Drained.Refused[s.Nodes[i].Name]
	}
	if err := look.Drained.Err; err != nil {
		s.CordonError = targetcluster.DescribeError(err)
		s.IsCordonResting = s.Now.Sub(look.Drained.At) < replacementRest
		s.Pods.Error = cmp.Or(s.Pods.Error, "nodes or pods cannot be changed: "+s.CordonError)
	}
}

// noteHealthChecks adds the MachineHealthChecks to the observed groups.
func (s *clusterObservation) noteHealthChecks(look targetcluster.Look) {
	if !look.WantsHealthChecks {
		return
	}
	if look.HealthChecksErr != nil {
		s.GroupsError = "MachineHealthChecks cannot be read: " + targetcluster.DescribeError(look.HealthChecksErr)
		return
	}
	s.healthChecks, s.HasReadHealthChecks = look.HealthChecks, true
	s.Groups = slices.Clip(s.Groups)
	var names []string
	for _, check := range look.HealthChecks {
		s.Groups, names = append(s.Groups, check.Group), append(names, check.Group.Name)
	}
	if last := look.Paused; last.Err != nil && s.Refusal == nil && last.IsPause == (s.DesiredPowerState == hivev1.PowerStateHibernating) {
		class := actuator.Other
		if targetcluster.IsRefusedForGood(last.Err) {
			class = actuator.PermissionDenied
		}
		s.Refusal = &hibernation.OrderRefusal{
			ObservationError: hibernation.ObservationError{Class: class, Message: "MachineHealthChecks cannot be changed: " + targetcluster.DescribeError(last.Err)},
			MachineIDs:       names,
		}
	}
}

// judgeRequests evaluates the cluster's certificate requests against the machines that may make them.
func (s *clusterObservation) judgeRequests(look targetcluster.Look) {
	if look.RequestsErr != nil {
		s.Blocked, s.IsAPICostly = []hibernation.BlockedRequest{{Reason: targetcluster.DescribeError(look.RequestsErr)}}, true
		return
	}
	s.requests = look.Requests
	inv := buildInventory(s.Observed, look.Known, look.IsOpenShift)
	inv.ClockAhead = s.clockAhead
	inv.LastApprovals, inv.SentApprovals = s.approvals.byNode, s.approvals.sent
	s.verdicts = csr.JudgeAll(s.requests, inv)
	s.approvals.noteRefusals(s.verdicts)
	for _, v := range s.verdicts {
		switch {
		case v.Decision == csr.Approve && len(s.Approvable) < maxApprovalsPerPass:
			s.Approvable = append(s.Approvable, v.Name)
		case v.Decision != csr.Approve && isWorthTelling(v):
			s.Blocked = append(s.Blocked, hibernation.BlockedRequest{NodeName: v.NodeName, Reason: v.Reason})
		}
	}
}
