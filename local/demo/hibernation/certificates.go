// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// outliveCertificates waits until the client certificates on the sleeping nodes' disks have expired.
func (r *run) outliveCertificates() error {
	r.step("Sleep until the nodes' certificates have expired")
	files, err := filepath.Glob(filepath.Join(r.clusterDir(), "*", "pki", "kubelet-client-current.pem"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("expected the nodes' client certificates in %s, found none", r.clusterDir())
	}
	var last time.Time
	for _, file := range files {
		expiry, err := expiryOf(file)
		if err != nil {
			return err
		}
		if expiry.After(last) {
			last = expiry
		}
	}
	r.note("the last of %d client certificates expires in %.0f s", len(files), time.Until(last).Seconds())
	err = r.poll("the certificates to expire", r.Certificates+time.Minute, func(context.Context) error {
		if left := time.Until(last); left > 0 {
			return fmt.Errorf("expected the certificates to have expired, %s are left", left.Round(time.Second))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.saw("every client certificate of the nodes has expired; nobody in the cluster will approve new ones")
	return nil
}

func expiryOf(file string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, fmt.Errorf("expected PEM in %s, found something else", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse %s: %w", file, err)
	}
	return cert.NotAfter, nil
}

// certificatesApproved looks that new client certificates were asked for with the bootstrap token and approved by Torpor.
func (r *run) certificatesApproved(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	list, err := target.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	approved := 0
	for _, csr := range list.Items {
		if csr.CreationTimestamp.Time.Before(since.Truncate(time.Second)) || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved && c.Reason == "TorporResumeApprove" {
				approved++
				r.saw("certificate request %s of %s was approved by Torpor", csr.Name, csr.Spec.Username)
			}
		}
	}
	if approved == 0 {
		return errors.New("expected certificate requests approved by Torpor, found none")
	}
	return nil
}

// nodesBack looks that every node is Ready by a heartbeat from after the machines' start.
func (r *run) nodesBack(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	nodes, err := target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))) {
				return fmt.Errorf("expected node %s ready since %s, found %s with a heartbeat of %s", n.Name, since, c.Status, c.LastHeartbeatTime)
			}
		}
	}
	r.saw("%d nodes are Ready, by heartbeats from after the start of the machines", len(nodes.Items))
	return nil
}
