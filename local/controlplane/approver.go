// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	approveInterval = time.Second
	// A real approver is a pod: when every node is down it does not run. A lease this old is a node that is down.
	leaseAlive = 10 * time.Second
)

// approveServing approves serving certificates of nodes that exist, as long as some node is alive.
// It never touches client certificates: those are renewed by the controller manager's self-renewal rule,
// and after a long sleep somebody outside has to decide.
func approveServing(ctx context.Context, client kubernetes.Interface) error {
	return wait.PollUntilContextCancel(ctx, approveInterval, true, func(ctx context.Context) (bool, error) {
		_ = approvePending(ctx, client) // What failed is tried again with the next beat.
		return false, nil
	})
}

func approvePending(ctx context.Context, client kubernetes.Interface) error {
	if alive, err := isAnyNodeAlive(ctx, client); err != nil || !alive {
		return err
	}
	list, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	for i := range list.Items {
		if err := approveRequest(ctx, client, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func isAnyNodeAlive(ctx context.Context, client kubernetes.Interface) (bool, error) {
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range leases.Items {
		if l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < leaseAlive {
			return true, nil
		}
	}
	return false, nil
}

func approveRequest(ctx context.Context, client kubernetes.Interface, csr *certificatesv1.CertificateSigningRequest) error {
	name, isNode := strings.CutPrefix(csr.Spec.Username, "system:node:")
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || !isNode || len(csr.Status.Conditions) != 0 {
		return nil
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "LocalServingApprover", Message: "approved by the cluster's own approver",
	}}
	_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	return nil
}
