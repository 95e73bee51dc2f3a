// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The requests that the tests name.
const (
	stopMachines   = "StopInstances"
	startMachines  = "StartInstances"
	listMachines   = "DescribeInstances"
	approveClient  = "approve client certificate"
	recordApproval = "record CertificatesApproved"
	readSecret     = "read secret "
	listNodes      = "GET /api/v1/nodes"
	saveRecord     = "save " + hivev1.StoppingMachinesReason
	saveNoAPI      = "save " + hivev1.WaitingForAPIReason
	saveNoNodes    = "save " + hivev1.WaitingForNodesReason
)

// managerRequest is one request of the manager. It is named by what it does and not by its number, so that a manager that
// was restarted makes a request of the same name again.
type managerRequest struct {
	name string
	// server is which server it went to.
	server  string
	isWrite bool
}

// The servers.
const (
	toHub     = "hub"
	toCloud   = "cloud"
	toCluster = "cluster"
)

// describeRequest names a request. A write that is not foreseen here is named by method and path, so that none is missed.
func describeRequest(via string, r *http.Request, body []byte) managerRequest {
	a := managerRequest{server: via, isWrite: r.Method != http.MethodGet}
	path := r.URL.Path
	_, secret, isSecret := strings.Cut(path, "/secrets/")
	_, kind, _ := strings.Cut(secret, "-") // Without the cluster's name.
	switch {
	case via == toCloud:
		a.name = cloudAction(body)
		a.isWrite = !strings.HasPrefix(a.name, "Describe")
	case isSecret && !a.isWrite:
		a.name = readSecret + kind
	case !a.isWrite:
		a.name = "GET " + path
	case strings.Contains(path, "/clusterdeployments/") && strings.HasSuffix(path, "/status"):
		a.name = "save " + savedReadyReason(body)
	case strings.HasSuffix(path, "/events"):
		a.name = "record " + eventReason(body)
	case strings.HasSuffix(path, "/approval"):
		a.name = "approve " + approvedCertificate(body) + " certificate"
	default:
		a.name = r.Method + " " + path
	}
	return a
}

func cloudAction(body []byte) string {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return "unreadable cloud call"
	}
	return form.Get("Action")
}

// savedReadyReason is the reason of the Ready condition that a status patch saves.
func savedReadyReason(body []byte) string {
	var patch struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	_ = json.Unmarshal(body, &patch) // A body of another kind saves no reason.
	for _, c := range patch.Status.Conditions {
		if c.Type == hivev1.ClusterReadyCondition {
			return c.Reason
		}
	}
	return "without reason"
}

// eventReason is the reason of an event, which travels in Kubernetes' own encoding.
func eventReason(body []byte) string {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return "something unreadable"
	}
	if e, ok := obj.(*eventsv1.Event); ok {
		return e.Reason
	}
	return fmt.Sprintf("%T", obj)
}

func approvedCertificate(body []byte) string {
	var request certificatesv1.CertificateSigningRequest
	_ = json.Unmarshal(body, &request) // A body of another kind has no signer.
	switch request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return "client"
	case certificatesv1.KubeletServingSignerName:
		return "serving"
	default:
		return "unknown"
	}
}

// readBody returns the body and puts it back.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

func TestEveryRequestIsNamedByWhatItDoes(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, body string
		want               managerRequest
	}{
		"a status patch by the reason that it saves": {
			http.MethodPatch, "/apis/hive.openshift.io/v1/namespaces/default/clusterdeployments/a/status",
			`{"status":{"conditions":[{"type":"Hibernating","reason":"Stopping"},{"type":"Ready","reason":"StoppingMachines"}]}}`,
			managerRequest{saveRecord, toHub, true},
		},
		"a cloud call by its action":    {http.MethodPost, "/", "Action=StopInstances&InstanceId.1=i-1", managerRequest{stopMachines, toCloud, true}},
		"a cloud's list writes nothing": {http.MethodPost, "/", "Action=DescribeInstances", managerRequest{listMachines, toCloud, false}},
		"an approval by the kind of certificate": {
			http.MethodPut, "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval",
			`{"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet"}}`,
			managerRequest{approveClient, toCluster, true},
		},
		"an event by its reason": {
			http.MethodPost, "/apis/events.k8s.io/v1/namespaces/default/events",
			`{"apiVersion":"events.k8s.io/v1","kind":"Event","reason":"CertificatesApproved"}`,
			managerRequest{recordApproval, toHub, true},
		},
		"a Secret by its kind": {
			http.MethodGet, "/api/v1/namespaces/default/secrets/a-aws-creds", "", managerRequest{readSecret + "aws-creds", toHub, false},
		},
		"a read by its path": {http.MethodGet, "/api/v1/nodes", "", managerRequest{listNodes, toCluster, false}},
		"a write that is not foreseen by its method and path": {http.MethodDelete, "/api/v1/nodes/n1", "", managerRequest{"DELETE /api/v1/nodes/n1", toCluster, true}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1"+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if got := describeRequest(c.want.server, r, []byte(c.body)); got != c.want {
				t.Errorf("expected %+v, found %+v", c.want, got)
			}
		})
	}
}
