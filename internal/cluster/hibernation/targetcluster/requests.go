// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	requestsPath    = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	approvalReason  = "TorporResumeApprove"
	approvalMessage = "The request passed every check of Torpor for a node of a cluster that resumes from hibernation"
	// maxRequestBytes is several times the size of a kubelet's request. A larger request is not kept and fails the
	// first check of its content.
	maxRequestBytes = 16 << 10
	// maxRequestElements limits each list in a request in the same way. The lists in kubelets' requests have up to
	// five elements.
	maxRequestElements = 32
	// maxRequestsBytes limits the memory of all requests: two for each of 5,000 nodes.
	maxRequestsBytes = 32 << 20
	// requestOverhead and elementOverhead exceed the fixed sizes in memory.
	requestOverhead, elementOverhead = 640, 128
)

// ListRequests returns the certificate signing requests for the signers of kubelets.
func (c *ClusterClient) ListRequests(ctx context.Context) ([]certificatesv1.CertificateSigningRequest, error) {
	var requests []certificatesv1.CertificateSigningRequest
	size := 0
	err := c.listItems(ctx, requestsPath, func(item []byte) error {
		request, err := decodeRequest(item)
		// Requests for other signers are ignored, because any user may create large numbers of them.
		switch request.Spec.SignerName {
		case certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName:
			if size += sizeOfRequest(&request); size > maxRequestsBytes {
				return errTooMuchToKeep
			}
			requests = append(requests, request)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list certificate requests: %w", err)
	}
	return requests, nil
}

// sizeOfRequest returns an upper bound of a request's memory.
func sizeOfRequest(r *certificatesv1.CertificateSigningRequest) int {
	size := requestOverhead + len(r.Name) + len(r.UID) + len(r.ResourceVersion) + len(r.Spec.Request) + len(r.Spec.Username) +
		elementOverhead*(len(r.Spec.Usages)+len(r.Spec.Groups)+len(r.Status.Conditions))
	for _, usage := range r.Spec.Usages {
		size += len(usage)
	}
	for _, group := range r.Spec.Groups {
		size += len(group)
	}
	for _, condition := range r.Status.Conditions {
		size += len(condition.Type) + len(condition.Status) + len(condition.Reason) + len(condition.Message)
	}
	return size
}

func decodeRequest(item []byte) (certificatesv1.CertificateSigningRequest, error) {
	var r struct {
		Metadata objectMetadata `json:"metadata"`
		Spec     struct {
			Request    []byte          `json:"request"`
			SignerName string          `json:"signerName"`
			Usages     json.RawMessage `json:"usages"`
			Username   string          `json:"username"`
			Groups     json.RawMessage `json:"groups"`
		} `json:"spec"`
		Status struct {
			Conditions  json.RawMessage `json:"conditions"`
			Certificate []byte          `json:"certificate"`
		} `json:"status"`
	}
	if err := json.Unmarshal(item, &r); err != nil {
		return certificatesv1.CertificateSigningRequest{}, errMalformed
	}
	out := certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: r.Metadata.Name, UID: types.UID(r.Metadata.UID), ResourceVersion: r.Metadata.ResourceVersion},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: r.Spec.SignerName, Username: r.Spec.Username},
	}
	if r.Metadata.CreationTimestamp != nil {
		out.CreationTimestamp = *r.Metadata.CreationTimestamp
	}
	if len(r.Spec.Request) <= maxRequestBytes {
		out.Spec.Request = r.Spec.Request
	}
	if len(r.Status.Certificate) > 0 {
		// Only the presence of a certificate matters.
		out.Status.Certificate = []byte{0}
	}
	var err error
	if out.Spec.Usages, err = decodeInnerList[certificatesv1.KeyUsage](r.Spec.Usages); err != nil {
		return out, err
	}
	if out.Spec.Groups, err = decodeInnerList[string](r.Spec.Groups); err != nil {
		return out, err
	}
	if out.Status.Conditions, err = decodeInnerList[certificatesv1.CertificateSigningRequestCondition](r.Status.Conditions); err != nil {
		return out, err
	}
	if max(len(out.Spec.Usages), len(out.Spec.Groups), len(out.Status.Conditions)) > maxRequestElements {
		out.Spec.Request, out.Spec.Usages, out.Spec.Groups, out.Status.Conditions = nil, nil, nil, nil
	}
	return out, nil
}

// ApproveRequest approves one request exactly as it was evaluated.
func (c *ClusterClient) ApproveRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	conditions := append(slices.Clip(r.Status.Conditions), certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: approvalReason, Message: approvalMessage,
	})
	// The patch contains the resource version and the UID of the evaluated request. The API server rejects it with a
	// conflict if the request was changed or replaced in between.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion},
		// The API server ignores the spec, but audit logs then show the kind of the approved certificate.
		"spec":   map[string]any{"signerName": r.Spec.SignerName},
		"status": map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("write approval: %w", err)
	}
	if err := c.discardAnswer(ctx, c.rest.Patch(types.MergePatchType).AbsPath(requestsPath, r.Name, "approval").Body(patch)); err != nil {
		return fmt.Errorf("approve certificate request %s: %w", r.Name, err)
	}
	return nil
}
