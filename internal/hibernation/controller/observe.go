// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
)

const (
	secretTimeout = 10 * time.Second
	kubeconfigKey = "kubeconfig"
)

// clusterObservation is what was observed, with the handles that acting needs.
type clusterObservation struct {
	hibernation.Observed
	actuator actuator.Actuator
	target   actuator.Target
	cluster  *targetcluster.ClusterClient
	requests []certificatesv1.CertificateSigningRequest
	verdicts []csr.Verdict
}

func (s *clusterObservation) closeConnection() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// observe reads everything that the decision may look at, and nothing more: a sleeping cluster is not dialled.
func (c Controller) observe(ctx context.Context, cd *hivev1.ClusterDeployment) *clusterObservation {
	seen := &clusterObservation{Observed: c.observeObject(cd)}
	if hibernation.NeedsCloud(seen.Observed) {
		c.observeCloud(ctx, cd, seen)
	}
	if hibernation.NeedsCluster(seen.Observed) {
		c.observeCluster(ctx, cd, seen)
	}
	return seen
}

func (c Controller) observeCloud(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) {
	p := platformOf(cd)
	credentials, err := c.readSecret(ctx, cd.Namespace, p.secret)
	if err != nil {
		seen.ObservationError = explainSecretError(p.secret, err)
		return
	}
	seen.actuator = c.Actuators[p.name]
	seen.target = actuator.Target{InfraID: cd.Spec.ClusterMetadata.InfraID, Region: p.region, Credentials: credentials}
	if known, ok := c.machineCache.freshMachines(cd.UID, seen.Observed); ok {
		seen.Machines = known
		return
	}
	machines, err := seen.actuator.Observe(ctx, seen.target)
	if err != nil {
		seen.ObservationError = explainCloudError(err)
		return
	}
	seen.Machines = machines
	c.machineCache.storeMachines(cd.UID, seen.Observed)
}

func (c Controller) observeCluster(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) {
	seen.API, seen.APIMessage = hibernation.Unreachable, ""
	kubeconfig, err := c.readSecret(ctx, cd.Namespace, kubeconfigSecretName(cd))
	if err != nil {
		seen.APIMessage = explainSecretError(kubeconfigSecretName(cd), err).Message
		return
	}
	if seen.cluster, err = targetcluster.Dial(kubeconfig[kubeconfigKey]); err != nil {
		seen.APIMessage = targetcluster.DescribeError(err)
		return
	}
	if err := seen.readCluster(ctx); err != nil {
		log.FromContext(ctx).V(1).Info("Cluster not reached", "error", err.Error())
		seen.APIMessage = targetcluster.DescribeError(err)
		seen.Nodes, seen.Approvable = nil, nil
		return
	}
	seen.API = hibernation.Reachable
}

func (s *clusterObservation) readCluster(ctx context.Context) error {
	err := s.cluster.Probe(ctx)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if !hibernation.NeedsNodes(s.Observed) {
		return nil
	}
	if s.Nodes, err = s.cluster.ListNodes(ctx); err != nil {
		return err
	}
	if !hibernation.NeedsRequests(s.Observed) {
		return nil
	}
	return s.judgeRequests(ctx)
}

func (c Controller) readSecret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var s corev1.Secret
	if err := c.secrets.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return s.Data, nil
}

func explainSecretError(name string, err error) *hibernation.ObservationError {
	if k8serrors.IsNotFound(err) {
		return &hibernation.ObservationError{
			Class:   actuator.CredentialsMissing,
			Message: fmt.Sprintf("Expected the Secret %s in the namespace of the ClusterDeployment, found none; create it", name),
		}
	}
	return &hibernation.ObservationError{Class: actuator.Other, Message: fmt.Sprintf("The Secret %s cannot be read from the hub", name)}
}

// explainCloudError shows a cloud's own words only where the actuator vouches that they are stable and free of secrets.
func explainCloudError(err error) *hibernation.ObservationError {
	if e, ok := errors.AsType[*actuator.Error](err); ok {
		return &hibernation.ObservationError{Class: e.Class, Message: e.Message + adviceFor(e.Class)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &hibernation.ObservationError{Class: actuator.Unreachable, Message: "The cloud did not answer in time"}
	}
	return &hibernation.ObservationError{Class: actuator.Other, Message: "The cloud call ended with an error of an unknown kind"}
}

// adviceFor says what to do about errors whose words are the cloud's own.
func adviceFor(c actuator.ErrorClass) string {
	switch c {
	case actuator.CredentialsInvalid:
		return "; correct the credentials Secret or the region"
	case actuator.PermissionDenied:
		return "; allow it to the user of the credentials Secret"
	case actuator.Throttled:
		return "; it is tried again by itself"
	case actuator.CredentialsMissing, actuator.Unreachable, actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other:
		return ""
	default:
		return ""
	}
}
