// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The names of the requests that tests use.
const (
	stopMachines   = "StopInstances"
	startMachines  = "StartInstances"
	listMachines   = "DescribeInstances"
	approveClient  = "approve client certificate"
	recordApproval = "record CertificatesApproved"
	readSecret     = "read secret "
	listNodes      = "GET /api/v1/nodes"
	tryOut         = "try out "
	saveRecord     = "save " + hivev1.StoppingMachinesReason
	saveNoAPI      = "save " + hivev1.WaitingForAPIReason
	saveNoNodes    = "save " + hivev1.WaitingForNodesReason
)

// managerRequest is one request of the manager. Its name describes its effect, so that a restarted manager makes
// requests with the same names.
type managerRequest struct {
	name string
	// server is the server to which it was sent.
	server  string
	isWrite bool
}

// The servers.
const (
	toHub     = "hub"
	toCloud   = "cloud"
	toCluster = "cluster"
)

// describeRequest returns the name of a request. An unknown write is named by method and path, so that no write is
// missed.
func describeRequest(via string, r *http.Request, body []byte) managerRequest {
	a := managerRequest{server: via, isWrite: r.Method != http.MethodGet}
	path := r.URL.Path
	_, secret, isSecret := strings.Cut(path, "/secrets/")
	_, kind, _ := strings.Cut(secret, "-") // The kind does not contain the cluster's name.
	switch {
	case via == toCloud:
		a.name = cloudAction(body)
		a.isWrite = !strings.HasPrefix(a.name, "Describe") && !strings.HasPrefix(a.name, tryOut)
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
	if form.Get("DryRun") == "true" {
		return tryOut + form.Get("Action")
	}
	return form.Get("Action")
}

func savedReadyReason(body []byte) string {
	var merge struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	var operations []struct {
		Value json.RawMessage `json:"value"`
	}
	// Another kind of body contains no reason.
	_, _ = json.Unmarshal(body, &merge), json.Unmarshal(body, &operations)
	for _, o := range operations {
		var c metav1.Condition
		_ = json.Unmarshal(o.Value, &c)
		merge.Status.Conditions = append(merge.Status.Conditions, c)
	}
	for _, c := range merge.Status.Conditions {
		if c.Type == hivev1.ClusterReadyCondition {
			return c.Reason
		}
	}
	return "without reason"
}

// eventReason returns the reason of an event, which is sent in Kubernetes' protobuf encoding.
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
	_ = json.Unmarshal(body, &request) // Another kind of body has no signer.
	switch request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return "client"
	case certificatesv1.KubeletServingSignerName:
		return "serving"
	default:
		return "unknown"
	}
}

// readBody returns the body of a request, and restores it for the next reader.
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

func TestManagerRequestsAreClassified(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, body string
		want               managerRequest
	}{
		"a merge patch of a status is named by the reason of Ready": {
			http.MethodPatch, "/apis/hive.openshift.io/v1/namespaces/default/clusterdeployments/a/status",
			`{"status":{"conditions":[{"type":"Hibernating","reason":"Stopping"},{"type":"Ready","reason":"StoppingMachines"}]}}`,
			managerRequest{saveRecord, toHub, true},
		},
		"a JSON patch of a status is named by the reason of Ready": {
			http.MethodPatch, "/apis/hive.openshift.io/v1/namespaces/default/clusterdeployments/a/status",
			`[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"replace","path":"/status/conditions/1","value":{"type":"Ready","reason":"StoppingMachines"}}]`,
			managerRequest{saveRecord, toHub, true},
		},
		"a cloud call is named by its action":      {http.MethodPost, "/", "Action=StopInstances&InstanceId.1=i-1", managerRequest{stopMachines, toCloud, true}},
		"a dry run of a cloud call is not a write": {http.MethodPost, "/", "Action=StopInstances&DryRun=true", managerRequest{tryOut + stopMachines, toCloud, false}},
		"a list of machines is not a write":        {http.MethodPost, "/", "Action=DescribeInstances", managerRequest{listMachines, toCloud, false}},
		"an approval is named by the signer of the certificate request": {
			http.MethodPut, "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval",
			`{"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet"}}`,
			managerRequest{approveClient, toCluster, true},
		},
		"an event is named by its reason": {
			http.MethodPost, "/apis/events.k8s.io/v1/namespaces/default/events",
			`{"apiVersion":"events.k8s.io/v1","kind":"Event","reason":"CertificatesApproved"}`,
			managerRequest{recordApproval, toHub, true},
		},
		"a read of a Secret is named by the Secret's name without the cluster": {
			http.MethodGet, "/api/v1/namespaces/default/secrets/a-aws-creds", "", managerRequest{readSecret + "aws-creds", toHub, false},
		},
		"a read of the cluster is named by its path":       {http.MethodGet, "/api/v1/nodes", "", managerRequest{listNodes, toCluster, false}},
		"an unknown write is named by its method and path": {http.MethodDelete, "/api/v1/nodes/n1", "", managerRequest{"DELETE /api/v1/nodes/n1", toCluster, true}},
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

type killMoment string

const (
	// before kills the manager when it has sent the request, and drops the request.
	before killMoment = "before"
	// after kills the manager when the request has taken effect, and drops the answer.
	after killMoment = "after"
)

type killPoint struct {
	request string
	when    killMoment
}

func (p killPoint) String() string { return string(p.when) + " " + p.request }

// managerTraffic records every request of the manager, and kills the manager at the armed points.
type managerTraffic struct {
	// killed receives each point at which the manager was killed, once its process has ended.
	killed chan killPoint

	mu       sync.Mutex
	requests []managerRequest
	// openRequests counts the open requests by name; a watch is open until it ends.
	openRequests map[string]int
	armed        []killPoint
	kill         func()
}

func newManagerTraffic() *managerTraffic {
	return &managerTraffic{killed: make(chan killPoint, 1), openRequests: map[string]int{}}
}

// armKillPoints sets the points of the next transition, in order, and clears the recorded requests.
func (w *managerTraffic) armKillPoints(points ...killPoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.armed = nil, slices.Clone(points)
}

// disarmKillPoints returns the points that were not reached.
func (w *managerTraffic) disarmKillPoints() []killPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.armed
	w.armed = nil
	return left
}

func (w *managerTraffic) setKill(kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kill = kill
}

// listRequests returns the requests since points were armed, in order.
func (w *managerTraffic) listRequests() []managerRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

func (w *managerTraffic) countRequests(name string) int {
	n := 0
	for _, a := range w.listRequests() {
		if a.name == name {
			n++
		}
	}
	return n
}

// killAt kills the manager if the point is the next armed one, and returns whether it did.
func (w *managerTraffic) killAt(p killPoint) bool {
	w.mu.Lock()
	hit := len(w.armed) > 0 && w.armed[0] == p
	if hit {
		w.armed = w.armed[1:]
	}
	kill := w.kill
	w.mu.Unlock()
	if hit {
		kill()
		w.killed <- p
	}
	return hit
}

// recordRequest adds an open request. The returned function marks the request as answered.
func (w *managerTraffic) recordRequest(a managerRequest) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, a)
	w.openRequests[a.name]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.openRequests[a.name]--
	}
}

// errManagerKilled interrupts an answer whose receiver has been killed.
var errManagerKilled = errors.New("expected the manager to receive the answer, found it killed")

type interceptingProxy struct {
	// url is the address that the manager gets in place of the server's.
	url string
	// connections is the number of the manager's connections.
	connections atomic.Int64
	// isShut makes the server look as if it had not started yet.
	isShut atomic.Bool
}

// startProxy starts a proxy for the server in cfg, with cfg's credentials. If the server does not answer, the proxy
// breaks the connection.
func (w *managerTraffic) startProxy(t *testing.T, via string, cfg *rest.Config) *interceptingProxy {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tp := &interceptingProxy{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(w.interceptRequests(tp, via, proxy))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			tp.connections.Add(1)
		}
	}
	server.Start()
	tp.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return tp
}

// interceptRequests records each request, and kills the manager before the request reaches the server or after the
// server has answered.
func (w *managerTraffic) interceptRequests(tp *interceptingProxy, via string, proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		a := describeRequest(via, r, body)
		defer w.recordRequest(a)()
		if w.killAt(killPoint{a.name, before}) || tp.isShut.Load() {
			panic(http.ErrAbortHandler)
		}
		own := *proxy
		own.ModifyResponse = func(answer *http.Response) error {
			if answer.StatusCode < http.StatusBadRequest && w.killAt(killPoint{a.name, after}) {
				return errManagerKilled
			}
			return nil
		}
		own.ServeHTTP(out, r)
	})
}
