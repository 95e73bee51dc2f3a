// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/accounts"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// maxFrequentLook is how long a look may take at a cluster that is looked at often.
const maxFrequentLook = 3 * time.Second

// clusterObservation is what was observed, with the handles that acting needs.
type clusterObservation struct {
	hibernation.Observed
	name     types.NamespacedName
	actuator actuator.Actuator
	target   actuator.Target
	cluster  *targetcluster.ClusterClient
	requests []certificatesv1.CertificateSigningRequest
	verdicts []csr.Verdict
	// clockAhead is how far the cluster's clock is ahead of the hub's.
	clockAhead time.Duration
	// approvals are nil while no certificate request is judged.
	approvals *resumeApprovals
	// ownerInterval is when a cluster is looked at again whose machines belong to another one; zero otherwise.
	ownerInterval time.Duration
	// firstLook is nil while the cluster does not resume.
	firstLook *firstLook
}

func (s *clusterObservation) release() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// observe reads everything that the decision may look at, and nothing more. A cloud or cluster that cannot be read is part
// of the observation and no error.
func (c Controller) observe(ctx context.Context, cd *hivev1.ClusterDeployment) (*clusterObservation, error) {
	seen := &clusterObservation{Observed: c.observeObject(cd), name: client.ObjectKeyFromObject(cd)}
	if hibernation.NeedsCloud(seen.Observed) && c.findTarget(ctx, cd, seen) {
		if err := c.observeCloud(ctx, cd, seen); err != nil {
			return nil, err
		}
	}
	owner, err := c.findMachineOwner(ctx, cd, seen.Machines)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		seen.Machines, seen.ownerInterval = nil, accountTTL
		seen.Invalid = fmt.Sprintf("Expected one ClusterDeployment for the infraID %s, found that its machines belong to %s/%s, which is older; delete one of both, or correct spec.clusterMetadata.infraID",
			cd.Spec.ClusterMetadata.InfraID, owner.Namespace, owner.Name)
	}
	seen.approvals = c.approvalLog.ofResume(cd.UID, seen.Observed)
	seen.firstLook = c.firstLooks.ofResume(cd.UID, seen.Observed)
	if hibernation.NeedsCluster(seen.Observed) {
		c.observeCluster(ctx, cd, seen)
	}
	return seen, nil
}

// findTarget finds out where the cluster's machines are and with which credentials; false if that is an error to report.
func (c Controller) findTarget(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) bool {
	platform := cd.Spec.Platform.Settings()
	seen.actuator = c.Actuators[platform.Name]
	seen.target = actuator.Target{InfraID: cd.Spec.ClusterMetadata.InfraID, Region: platform.Region}
	if platform.CredentialsSecretName == "" {
		seen.target.Role = &actuator.Role{Name: platform.AssumeRole.RoleARN, ExternalID: platform.AssumeRole.ExternalID, Namespace: cd.Namespace}
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
	// freshLookAge is how old a look at the cloud may be that a change is decided by, and aftercareLookAge while late changes are
	// looked for.
	freshLookAge     = 10 * time.Second
	aftercareLookAge = 30 * time.Second
)

// observeCloud reads what is known of the machines. What is too old is looked at anew, and the pass waits for that.
func (c Controller) observeCloud(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) error {
	look, isKnown := c.accounts.Look(ctx, accounts.Cluster{Name: seen.name, Actuator: seen.actuator, Target: seen.target})
	if !isKnown || !look.IsAnswer && seen.Now.Sub(look.At) > maxLookAge(cd, seen.Observed, look) {
		c.accounts.Refresh(seen.name)
		return reconcile.ErrPending
	}
	c.machineAccounts.store(seen.name, look.Machines, seen.Now)
	if look.Err != nil {
		seen.ObservationError = explainCloudError(look.Err)
		return nil
	}
	seen.Machines = look.Machines
	if r := look.Refused; r != nil && (r.Verb == accounts.StopVerb) == (seen.DesiredPowerState == hivev1.PowerStateHibernating) {
		seen.Refusal = &hibernation.OrderRefusal{ObservationError: *explainCloudError(r.Err), MachineIDs: r.MachineIDs}
	}
	return nil
}

// maxLookAge is long for a cluster that is and was as it should be, and for whose pass there is no reason but the time.
func maxLookAge(cd *hivev1.ClusterDeployment, o hibernation.Observed, look accounts.Snapshot) time.Duration {
	o.Machines = look.Machines
	switch {
	case look.Err == nil && hibernation.IsFollowed(o):
		return aftercareLookAge // The machines are watched, and the API server answers or not meanwhile.
	case look.Err != nil || !hibernation.IsPowerSettled(o) || cd.Status.PowerState != string(cmp.Or(o.DesiredPowerState, hivev1.PowerStateRunning)):
		return freshLookAge
	case look.IsUsed && !look.IsScheduled:
		return 0 // Somebody has changed something since, and may want what is wrong to be mended.
	case hibernation.IsInAftercare(o):
		return aftercareLookAge
	default:
		return accounts.SettledLookAge
	}
}

func (c Controller) observeCluster(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) {
	seen.API, seen.APIMessage = hibernation.Unreachable, ""
	kubeconfig, err := c.readSecret(ctx, cd.Namespace, kubeconfigSecretName(cd))
	if err != nil {
		seen.APIMessage, seen.IsAPIProblemLasting = explainSecretError(kubeconfigSecretName(cd), err).Message, true
		return
	}
	if seen.cluster, err = c.Dialer.Dial(kubeconfig[kubeconfigKey]); err != nil {
		seen.APIMessage, seen.IsAPIProblemLasting = targetcluster.DescribeError(err), true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, targetcluster.LookTimeout)
	defer cancel()
	began := c.Clock.Now()
	if err := seen.readCluster(ctx, began); err != nil {
		log.FromContext(ctx).V(1).Info("Cluster not reached", "reason", targetcluster.DescribeError(err))
		seen.APIMessage = targetcluster.DescribeError(err)
		seen.IsAPIProblemLasting = targetcluster.IsLasting(err)
		seen.IsAPICostly = targetcluster.IsTooCostly(err) || c.Clock.Since(began) > maxFrequentLook
		// Half of what was to be read is nothing to decide by: a node that is missing in the list would look gone.
		seen.Nodes, seen.Approvable, seen.Blocked = nil, nil, nil
		return
	}
	seen.API = hibernation.Reachable
}

func (s *clusterObservation) readCluster(ctx context.Context, began time.Time) error {
	err := s.cluster.Probe(ctx)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	s.clockAhead = measureClock(s.cluster.FirstDate(), began)
	if !hibernation.NeedsNodes(s.Observed) {
		return nil
	}
	if s.Nodes, err = s.cluster.ListNodes(ctx); err != nil {
		return err
	}
	s.firstLook.compare(s.Observed)
	if !hibernation.NeedsCertificateRequests(s.Observed) {
		return nil
	}
	return s.judgeRequests(ctx)
}

// judgeRequests lists the cluster's certificate requests and the machines that may make them, and judges.
func (s *clusterObservation) judgeRequests(ctx context.Context) error {
	var err error
	if s.requests, err = s.cluster.ListRequests(ctx); targetcluster.IsTooCostly(err) {
		// Whoever fills a cluster with requests must not make it look unreachable.
		s.Blocked, s.IsAPICostly = []hibernation.BlockedRequest{{Reason: targetcluster.DescribeError(err)}}, true
		return nil
	} else if err != nil {
		return err
	}
	machines, isOpenShift, err := s.cluster.ListMachines(ctx)
	if err != nil {
		return err
	}
	inv := buildInventory(s.Observed, machines, isOpenShift)
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
	return nil
}
