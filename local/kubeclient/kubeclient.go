// SPDX-License-Identifier: Apache-2.0

// Package kubeclient creates clients of the control planes on this machine, and approves certificates with them.
package kubeclient

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// NewClient returns a client that uses a kubeconfig.
func NewClient(kubeconfig string) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.QPS = -1 // The rate limit is disabled, because a start would take much longer with the default of 5 requests a second.
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return client, nil
}

// ApproveRequests approves the pending certificate requests for which isWanted returns true.
func ApproveRequests(ctx context.Context, client kubernetes.Interface, reason, message string,
	isWanted func(certificatesv1.CertificateSigningRequestSpec) (bool, error),
) error {
	requests := client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	for i := range list.Items {
		csr := &list.Items[i]
		if len(csr.Status.Conditions) > 0 {
			continue
		}
		wanted, err := isWanted(csr.Spec)
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		}}
		if _, err := requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("approve: %w", err)
		}
	}
	return nil
}
