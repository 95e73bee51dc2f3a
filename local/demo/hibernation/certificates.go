// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
)

// outliveCertificates waits until the client certificates on the stopped nodes' disks have expired.
func (d *clusterDemo) outliveCertificates() error {
	d.BeginStep("Sleep until the nodes' certificates have expired")
	files, err := filepath.Glob(filepath.Join(d.config.clusterDir(), "*", "pki", "kubelet-client-current.pem"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("expected the nodes' client certificates in %s, found none", d.config.clusterDir())
	}
	var last time.Time
	for _, file := range files {
		certs, err := certutil.CertsFromFile(file)
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		// The file of the kubelet holds the certificate and its key.
		if expiry := certs[0].NotAfter; expiry.After(last) {
			last = expiry
		}
	}
	d.AddNote("the last of %d client certificates expires in %.0f s", len(files), time.Until(last).Seconds())
	err = d.Poll("the certificates to expire", d.config.Certificates+time.Minute, func(context.Context) error {
		if left := time.Until(last); left > 0 {
			return fmt.Errorf("expected the certificates to have expired, %s are left", left.Round(time.Second))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.PrintObserved("every client certificate of the nodes has expired; nobody in the cluster will approve new ones")
	return nil
}

// verifyCertificatesApproved verifies that new client certificates were asked for with the bootstrap token and approved by Torpor.
func (d *clusterDemo) verifyCertificatesApproved(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	list, err := target.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	approved := 0
	for _, csr := range list.Items {
		// The API server keeps times in whole seconds.
		if csr.CreationTimestamp.Time.Before(since.Truncate(time.Second)) || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved && c.Reason == "TorporResumeApprove" {
				approved++
				d.PrintObserved("certificate request %s of %s was approved by Torpor", csr.Name, csr.Spec.Username)
			}
		}
	}
	if approved == 0 {
		return errors.New("expected certificate requests approved by Torpor, found none")
	}
	return nil
}

// verifyNodesReady verifies that every node is Ready by a heartbeat from after the machines' start.
func (d *clusterDemo) verifyNodesReady(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	nodes, err := target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			// The API server keeps times in whole seconds.
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))) {
				return fmt.Errorf("expected node %s ready since %s, found %s with a heartbeat of %s", n.Name, since, c.Status, c.LastHeartbeatTime)
			}
		}
	}
	d.PrintObserved("%d nodes are Ready, by heartbeats from after the start of the machines", len(nodes.Items))
	return nil
}
