// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	requestsPath    = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	approvalReason  = "TorporResumeApprove"
	approvalMessage = "The request passed every check of Torpor for a node of a cluster that resumes from hibernation"
	machineAPI      = "openshift-machine-api"
)

// ListRequests returns every certificate signing request.
func (c *ClusterClient) ListRequests(ctx context.Context) ([]certificatesv1.CertificateSigningRequest, error) {
	var requests []certificatesv1.CertificateSigningRequest
	err := listPages(ctx, c, requestsPath, func(page *certificatesv1.CertificateSigningRequestList) {
		requests = append(requests, page.Items...)
	})
	if err != nil {
		return nil, fmt.Errorf("list certificate requests: %w", err)
	}
	return requests, nil
}

// ApproveRequest approves one request exactly as it was judged.
func (c *ClusterClient) ApproveRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	approved := r.DeepCopy()
	approved.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: approvalReason, Message: approvalMessage,
	})
	// The copy carries the resource version and the UID that were judged, so the API server refuses with a conflict if the
	// request has changed or was replaced since.
	err := c.rest.Put().AbsPath(requestsPath, r.Name, "approval").Body(approved).MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("approve certificate request %s: %w", r.Name, err)
	}
	return nil
}

// ListMachines returns the OpenShift Machines of the cluster, and false if it does not serve that kind.
func (c *ClusterClient) ListMachines(ctx context.Context) ([]unstructured.Unstructured, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind := schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}
	list, err := c.dynamic.Resource(kind).Namespace(machineAPI).List(ctx, metav1.ListOptions{})
	switch {
	case k8serrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("list Machines: %w", err)
	}
	return list.Items, true, nil
}
