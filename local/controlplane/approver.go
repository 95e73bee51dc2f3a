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

	"github.com/torpor-dev/torpor/local/kubeclient"
)

const (
	approveInterval = time.Second
	// A real approver is a pod: when every node is down it does not run. A lease this old is a node that is down.
	leaseAlive = 10 * time.Second
)

// approveServing approves serving certificates of nodes that exist, as long as some node is alive.
// It never touches client certificates: those are renewed by the controller manager's self-renewal rule,
// and after a hibernation that outlived them an administrator or Torpor has to decide.
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
	return kubeclient.ApproveRequests(ctx, client, "LocalServingApprover", "approved by the cluster's own approver",
		func(csr certificatesv1.CertificateSigningRequestSpec) (bool, error) {
			name, isNode := strings.CutPrefix(csr.Username, "system:node:")
			if csr.SignerName != certificatesv1.KubeletServingSignerName || !isNode {
				return false, nil
			}
			if _, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return false, fmt.Errorf("get node: %w", err)
			}
			return true, nil
		})
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
