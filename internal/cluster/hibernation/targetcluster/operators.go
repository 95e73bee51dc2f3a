// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const (
	operatorsPath = "/apis/config.openshift.io/v1/clusteroperators"
	leasesPath    = "/apis/coordination.k8s.io/v1/leases"
	// maxOperators is ten times the number of OpenShift's operators.
	maxOperators = 500
	// operatorSuffix is the suffix of most namespaces in which operators run.
	operatorSuffix = "-operator"
	// operatorSyncTime is how long a starting operator takes to check its operand and to report.
	operatorSyncTime = 30 * time.Second
)

// clusterOperator is a ClusterOperator and the namespaces that may contain its lease.
type clusterOperator struct {
	hibernation.ObservedOperator
	namespaces []string
}

// ListOperators returns the ClusterOperators of an OpenShift cluster, each with the time of its last condition change
// or lease renewal by the cluster's clock. The result is empty if the cluster does not serve them, or does not allow
// reading them.
func (c *ClusterClient) ListOperators(ctx context.Context) ([]hibernation.ObservedOperator, error) {
	all, err := c.listOperatorConditions(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	renewed, err := c.listOperatorLeases(ctx)
	if err != nil {
		return nil, err
	}
	var operators []hibernation.ObservedOperator
	for _, o := range all {
		for _, namespace := range o.namespaces {
			if at := renewed[namespace]; at.After(o.LastSeen) {
				o.LastSeen = at
			}
		}
		operators = append(operators, o.ObservedOperator)
	}
	return operators, nil
}

// ListOperatorProblems returns the ClusterOperators with the problems in their conditions, without reading leases.
func (c *ClusterClient) ListOperatorProblems(ctx context.Context) ([]hibernation.ObservedOperator, error) {
	all, err := c.listOperatorConditions(ctx)
	var operators []hibernation.ObservedOperator
	for _, o := range all {
		operators = append(operators, o.ObservedOperator)
	}
	return operators, err
}

func (c *ClusterClient) listOperatorConditions(ctx context.Context) ([]clusterOperator, error) {
	var all []clusterOperator
	err := c.listItems(ctx, operatorsPath, func(item []byte) error {
		if len(all) >= maxOperators {
			return errTooManyItems
		}
		operator, err := decodeOperator(item)
		all = append(all, operator)
		return err
	})
	switch {
	case k8serrors.IsNotFound(err), k8serrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ClusterOperators: %w", err)
	}
	return all, nil
}

// decodeOperator reads the few relevant fields of a ClusterOperator.
func decodeOperator(item []byte) (clusterOperator, error) {
	var o struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Conditions     json.RawMessage `json:"conditions"`
			RelatedObjects json.RawMessage `json:"relatedObjects"`
		} `json:"status"`
	}
	if err := json.Unmarshal(item, &o); err != nil || len(o.Metadata.Name) > maxNameBytes {
		return clusterOperator{}, errMalformed
	}
	conditions, err := decodeInnerList[operatorCondition](o.Status.Conditions)
	if err != nil {
		return clusterOperator{}, err
	}
	related, err := decodeInnerList[relatedObject](o.Status.RelatedObjects)
	if err != nil {
		return clusterOperator{}, err
	}
	out := clusterOperator{ObservedOperator: hibernation.ObservedOperator{Name: o.Metadata.Name}, namespaces: operatorNamespaces(related)}
	for _, condition := range conditions {
		if at := condition.LastTransitionTime.Time; at.After(out.LastSeen) {
			out.LastSeen = at
		}
		if out.Problem == "" {
			out.Problem = condition.problem()
		}
		out.IsBroken = out.IsBroken || condition.isBroken()
	}
	return out, nil
}

type operatorCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// problem returns the problem that the condition reports; empty if it reports none, or has another type.
func (c operatorCondition) problem() string {
	switch {
	case c.Type == "Available" && c.Status != string(metav1.ConditionTrue):
		return "not available"
	case c.Type == "Degraded" && c.Status == string(metav1.ConditionTrue):
		return "degraded"
	case c.Type == "Progressing" && c.Status == string(metav1.ConditionTrue):
		return "progressing"
	default:
		return ""
	}
}

// isBroken reports whether the condition reports that the operator is degraded or not available.
func (c operatorCondition) isBroken() bool { return c.Type != "Progressing" && c.problem() != "" }

type relatedObject struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
}

// operatorNamespaces returns the namespaces in which the operator itself may run. A lease of its operand does not show
// that the operator runs.
func operatorNamespaces(related []relatedObject) []string {
	var all, own []string
	for _, r := range related {
		if r.Resource != "namespaces" {
			continue
		}
		all = append(all, r.Name)
		if strings.HasSuffix(r.Name, operatorSuffix) {
			own = append(own, r.Name)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}

// listOperatorLeases returns the newest renewal of a lease in each namespace. It ignores a lease that was acquired less
// than operatorSyncTime before its renewal, because its holder has not reported yet.
func (c *ClusterClient) listOperatorLeases(ctx context.Context) (map[string]time.Time, error) {
	renewed := map[string]time.Time{}
	err := c.listItems(ctx, leasesPath, func(item []byte) error {
		var lease struct {
			Metadata struct {
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Spec struct {
				AcquireTime *metav1.MicroTime `json:"acquireTime"`
				RenewTime   *metav1.MicroTime `json:"renewTime"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(item, &lease); err != nil || len(lease.Metadata.Namespace) > maxNameBytes {
			return errMalformed
		}
		taken, at := lease.Spec.AcquireTime, lease.Spec.RenewTime
		isOfNode := slices.Contains([]string{corev1.NamespaceNodeLease, metav1.NamespaceSystem}, lease.Metadata.Namespace)
		if isOfNode || at == nil || taken != nil && at.Sub(taken.Time) < operatorSyncTime {
			return nil
		}
		if at.After(renewed[lease.Metadata.Namespace]) {
			renewed[lease.Metadata.Namespace] = at.Time
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the leases of operators: %w", err)
	}
	return renewed, nil
}
