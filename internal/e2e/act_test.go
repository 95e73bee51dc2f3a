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

// The acts that the tests name.
const (
	stopMachines  = "StopInstances"
	startMachines = "StartInstances"
	listMachines  = "DescribeInstances"
	approveClient = "approve client certificate"
	tellApproval  = "tell CertificatesApproved"
	readSecret    = "read secret "
	listNodes     = "GET /api/v1/nodes"
	saveRecord    = "save " + hivev1.StoppingMachinesReason
	saveNoAPI     = "save " + hivev1.WaitingForAPIReason
	saveNoNodes   = "save " + hivev1.WaitingForNodesReason
)

// act is one request of the manager, named by what it does and not by its number, so that a manager that was started
// anew does the same act again.
type act struct {
	name string
	// via is which wire it went over.
	via    string
	writes bool
}

// The wires.
const (
	viaHub     = "hub"
	viaCloud   = "cloud"
	viaCluster = "cluster"
)

// actOf names a request. Writes that nobody thought of are named by method and path: no act goes by unseen.
func actOf(via string, r *http.Request, body []byte) act {
	a := act{via: via, writes: r.Method != http.MethodGet}
	path := r.URL.Path
	_, secret, isSecret := strings.Cut(path, "/secrets/")
	_, kind, _ := strings.Cut(secret, "-") // Without the cluster's name.
	switch {
	case via == viaCloud:
		a.name = cloudAction(body)
		a.writes = !strings.HasPrefix(a.name, "Describe")
	case isSecret && !a.writes:
		a.name = readSecret + kind
	case !a.writes:
		a.name = "GET " + path
	case strings.Contains(path, "/clusterdeployments/") && strings.HasSuffix(path, "/status"):
		a.name = "save " + savedReason(body)
	case strings.HasSuffix(path, "/events"):
		a.name = "tell " + toldReason(body)
	case strings.HasSuffix(path, "/approval"):
		a.name = "approve " + approvedKind(body) + " certificate"
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

// savedReason is the reason of the Ready condition that a status patch saves.
func savedReason(body []byte) string {
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

// toldReason is the reason of an event, which travels in Kubernetes' own encoding.
func toldReason(body []byte) string {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return "something unreadable"
	}
	if e, ok := obj.(*eventsv1.Event); ok {
		return e.Reason
	}
	return fmt.Sprintf("%T", obj)
}

func approvedKind(body []byte) string {
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
		want               act
	}{
		"a status patch by the reason that it saves": {
			http.MethodPatch, "/apis/hive.openshift.io/v1/namespaces/default/clusterdeployments/a/status",
			`{"status":{"conditions":[{"type":"Hibernating","reason":"Stopping"},{"type":"Ready","reason":"StoppingMachines"}]}}`,
			act{saveRecord, viaHub, true},
		},
		"a cloud call by its action":    {http.MethodPost, "/", "Action=StopInstances&InstanceId.1=i-1", act{stopMachines, viaCloud, true}},
		"a cloud's list writes nothing": {http.MethodPost, "/", "Action=DescribeInstances", act{listMachines, viaCloud, false}},
		"an approval by the kind of certificate": {
			http.MethodPut, "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval",
			`{"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet"}}`,
			act{approveClient, viaCluster, true},
		},
		"an event by its reason": {
			http.MethodPost, "/apis/events.k8s.io/v1/namespaces/default/events",
			`{"apiVersion":"events.k8s.io/v1","kind":"Event","reason":"CertificatesApproved"}`,
			act{tellApproval, viaHub, true},
		},
		"a Secret by its kind": {
			http.MethodGet, "/api/v1/namespaces/default/secrets/a-aws-creds", "", act{readSecret + "aws-creds", viaHub, false},
		},
		"a read by its path":                 {http.MethodGet, "/api/v1/nodes", "", act{listNodes, viaCluster, false}},
		"a write that nobody has thought of": {http.MethodDelete, "/api/v1/nodes/n1", "", act{"DELETE /api/v1/nodes/n1", viaCluster, true}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1"+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if got := actOf(c.want.via, r, []byte(c.body)); got != c.want {
				t.Errorf("expected %+v, found %+v", c.want, got)
			}
		})
	}
}
