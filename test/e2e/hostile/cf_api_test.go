// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	system        = "torpor-system"
	honestCallers = 3000
	// floodRounds is the number of rounds of requests of honest callers, each once alone and once together with bad
	// tokens; badTokens is the minimum number of bad tokens in each round.
	floodRounds, badTokens = 3, 700
	// parallel is the number of concurrent requests of honest callers.
	parallel = 32
)

// cfAPI is the real program, with a hub that accepts every caller with a token that begins with honest.
type cfAPI struct {
	process *testenv.Process
	hub     *callerHub
	url     string
	pool    *x509.CertPool
	honest  *http.Client
	space   string
}

func startCFAPI(t *testing.T) *cfAPI {
	t.Helper()
	binary := testenv.TorporPath(t)
	e := testenv.Start(t)
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	e.ApplyManifest(t, "rbac/cf/api.yaml")
	a := &cfAPI{hub: startCallerHub(t, e), space: "space-1"}
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: a.space, Labels: map[string]string{korifiv1alpha1.OrgGUIDLabel: "org-1", korifiv1alpha1.SpaceGUIDLabel: a.space},
	}})
	folder, address := t.TempDir(), testenv.FreeAddress(t)
	a.process = testenv.StartProcess(t, binary, []string{
		"cf-api", "--kubeconfig", a.hub.writeKubeconfig(t, e), "--address", address, "--tls-folder", folder, "--metrics-address", "0", "--max-staleness", "10s",
	}, nil)
	a.url = "https://" + address
	testenv.Eventually(t, "the API answers", func() error {
		ca, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
		if err != nil {
			return err
		}
		a.pool = x509.NewCertPool()
		a.pool.AppendCertsFromPEM(ca)
		a.honest = a.newClient(t, "127.0.0.1")
		_, _, err = a.send(t.Context(), a.honest, "", "GET /healthz", "")
		return err
	})
	return a
}

// newClient returns a client that sends from the given address of this machine.
func (a *cfAPI) newClient(t *testing.T, from string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request and returns its status and duration.
func (a *cfAPI) send(ctx context.Context, as *http.Client, authorization, line, body string) (int, time.Duration, error) {
	method, path, _ := strings.Cut(line, " ")
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	request.Header.Set("Authorization", authorization)
	begin := time.Now()
	answer, err := as.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, time.Since(begin), err
}

// sendAll sends one request of each caller, beginning with first, and returns the number of answers by status, and
// the median duration.
func (a *cfAPI) sendAll(t *testing.T, first, callers int, line, body string) (map[int]int, time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	statuses := map[int]int{}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(callers); i = next.Add(1) {
				status, after, err := a.send(t.Context(), a.honest, fmt.Sprintf("Bearer honest-%d", int64(first)+i), line, body)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				statuses[status]++
				took = append(took, after)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.Sort(took)
	return statuses, took[len(took)/2]
}

// flood sends 500 invalid tokens a second until stop is called, which returns the number of answers by status.
func (a *cfAPI) flood(t *testing.T, from string) (sent *atomic.Int64, stop func() map[int]int) {
	t.Helper()
	const perSecond, atOnce = 500, 16
	client := a.newClient(t, from)
	ctx, cancel := context.WithCancel(t.Context())
	statuses := map[int]int{}
	var mu sync.Mutex
	sent = &atomic.Int64{}
	ticks := time.NewTicker(time.Second / perSecond)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				status, _, err := a.send(ctx, client, fmt.Sprintf("Bearer bad-%d", sent.Add(1)), "GET /whoami", "")
				if err == nil {
					mu.Lock()
					statuses[status]++
					mu.Unlock()
				}
			}
		})
	}
	return sent, func() map[int]int {
		cancel()
		workers.Wait()
		ticks.Stop()
		return statuses
	}
}

// TestCFAPI sends various hostile requests of strangers and developers to one API, and checks its memory at the end.
func TestCFAPI(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("expected Linux, where all addresses in 127.0.0.0/8 are local and /proc shows memory")
	}
	a := startCFAPI(t)
	for _, row := range []struct {
		name string
		run  func(*testing.T, *cfAPI)
	}{
		{"callers are served despite 500 bad tokens a second", testFloodOfBadTokens},
		{"manifests with aliases are refused without expanding them", testManifestsWithAliases},
		{"large keys are refused without parsing them", testLargeKeys},
		{"the loss of the hub is noticed", testHubThatIsCutOff},
	} {
		t.Run(row.name, func(t *testing.T) { row.run(t, a) })
	}
	peak := readPeakMemory(t, a.process.PID())
	t.Logf("the API used at most %d MiB", peak>>20)
	if peak > maxMemory {
		t.Errorf("found %d MiB at its worst, want at most %d", peak>>20, maxMemory>>20)
	}
}

// testFloodOfBadTokens compares alternating rounds. Request durations on a busy machine are unreliable, so the
// criterion is the CPU time per bad token, which is the only resource that a bad token takes from other callers.
func testFloodOfBadTokens(t *testing.T, a *cfAPI) {
	const perRound = honestCallers / floodRounds
	serve := func(first, callers int) time.Duration {
		t.Helper()
		statuses, median := a.sendAll(t, first, callers, "GET /whoami", "")
		if statuses[http.StatusOK] != callers {
			t.Errorf("found %v, want %d times 200", statuses, callers)
		}
		return median
	}
	serve(0, honestCallers) // After this, the API has authenticated each honest caller once.
	var alone, beside []time.Duration
	var aloneCPU, besideCPU time.Duration
	var bad, honest int64
	before, begin := a.hub.refused.Load(), time.Now()
	for round := range floodRounds {
		spent := testenv.ReadProcessorTime(t, a.process.PID())
		alone = append(alone, serve(round*perRound, perRound))
		aloneCPU += testenv.ReadProcessorTime(t, a.process.PID()) - spent
		spent = testenv.ReadProcessorTime(t, a.process.PID())
		sent, stop := a.flood(t, "127.0.0.2")
		for first := true; first || sent.Load() < badTokens; first = false {
			beside = append(beside, serve(round*perRound, perRound))
			honest += perRound
		}
		stop()
		besideCPU += testenv.ReadProcessorTime(t, a.process.PID()) - spent
		bad += sent.Load()
	}
	// The rounds of honest callers alone count, too, because the allowance for bad tokens increases during them.
	asked, elapsed := a.hub.refused.Load()-before, time.Since(begin)
	costOfHonest := aloneCPU / honestCallers
	costOfBad := (besideCPU - time.Duration(honest)*costOfHonest) / time.Duration(bad)
	t.Logf("the median of honest callers: %s alone, %s together with bad tokens: %.2f times", median(alone), median(beside), slowdown(alone, beside))
	t.Logf("CPU time: %s per honest request, %s per bad token of %d, of which about %d reached the hub", costOfHonest, costOfBad, bad, asked)
	if costOfBad > maxCostOfBadToken*costOfHonest {
		t.Errorf("found that a bad token costs %s, want at most %d times the %s of an honest request", costOfBad, maxCostOfBadToken, costOfHonest)
	}
	if statuses, _ := a.sendAll(t, 0, 1, "GET /v3/apps", ""); statuses[http.StatusOK] != 1 {
		t.Errorf("found %v afterwards, want 200", statuses)
	}
	// The limit per address is 10 a second with a burst of 40, plus the allowed requests in flight.
	const burst, perSecond = 40 + 2*16, 10
	if float64(asked) > burst+perSecond*elapsed.Seconds() {
		t.Errorf("found the hub asked about %d bad tokens in %s, want about 10 a second", asked, elapsed)
	}
}

// maxCostOfBadToken is the maximum cost of a bad token, in honest requests. Most of the cost is measured as a
// difference, which is several times larger on a busy machine.
const maxCostOfBadToken = 10

func testManifestsWithAliases(t *testing.T, a *cfAPI) {
	bomb := "x: &x " + strings.Repeat("y", 40_000) + "\napplications:\n- name: a\n  e: [" + strings.Repeat("*x,", 5000) + "]"
	wide := "applications: [{name: a, e: [" + strings.Repeat("1,", 120_000) + "]}]"
	for name, body := range map[string]string{"aliases of a long text": bomb, "many nodes": wide, "many apps": "applications:\n" + strings.Repeat("- name: a\n", 20_000)} {
		for _, action := range []string{"actions/apply_manifest", "manifest_diff"} {
			const requests = 24
			statuses, median := a.sendAll(t, 0, requests, "POST /v3/spaces/"+a.space+"/"+action, body)
			t.Logf("%s: %v, median %s", name, statuses, median)
			// On a busy machine, some requests wait too long for their turn and fail.
			if refused := statuses[http.StatusUnprocessableEntity]; refused < requests/2 || refused+statuses[http.StatusServiceUnavailable] != requests {
				t.Errorf("%s: found %v, want 422", name, statuses)
			}
		}
	}
}

func testLargeKeys(t *testing.T, a *cfAPI) {
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: make([]byte, 30_000)})
	status, took, err := a.send(t.Context(), a.honest, "ClientCert "+base64.StdEncoding.EncodeToString(block), "GET /whoami", "")
	t.Logf("found %d after %s", status, took)
	if err != nil || status != http.StatusUnauthorized {
		t.Errorf("found %d (%v), want 401", status, err)
	}
}

func testHubThatIsCutOff(t *testing.T, a *cfAPI) {
	expect := func(what string, status int) {
		t.Helper()
		for _, line := range []string{"GET /readyz", "GET /v3/apps"} {
			testenv.Eventually(t, what, func() error {
				found, _, err := a.send(t.Context(), a.honest, "Bearer honest-1", line, "")
				if err == nil && found != status {
					err = fmt.Errorf("%s: found %d", line, found)
				}
				return err
			})
		}
	}
	expect("it is ready", http.StatusOK)
	a.hub.setCutOff(true)
	expect("outdated data is not shown", http.StatusServiceUnavailable)
	if status, _, err := a.send(t.Context(), a.honest, "", "GET /healthz", ""); err != nil || status != http.StatusOK {
		t.Errorf("found %d (%v), want it alive", status, err)
	}
	a.hub.setCutOff(false)
	expect("it is ready again", http.StatusOK)
}

// callerHub is a proxy in front of a real API server. It authenticates callers itself, because creating thousands of
// real users would take longer than the whole test.
type callerHub struct {
	url     string
	ca      []byte
	refused atomic.Int64

	mu sync.Mutex
	// connected is closed when the hub is disconnected; nil while it is disconnected.
	connected chan struct{}
}

func (h *callerHub) setCutOff(cutOff bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.connected != nil {
		close(h.connected)
	}
	if h.connected = nil; !cutOff {
		h.connected = make(chan struct{})
	}
}

// connection returns a channel that is closed when the hub is disconnected; nil if it is disconnected.
func (h *callerHub) connection() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connected
}

// writeKubeconfig writes a kubeconfig with which the API accesses the hub with the permissions of its role.
func (h *callerHub) writeKubeconfig(t *testing.T, e *testenv.Environment) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-cf-api"}}
	if err := e.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["hub"] = &clientcmdapi.Cluster{Server: h.url, CertificateAuthorityData: h.ca}
	c.AuthInfos["api"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	c.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "api"}
	c.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}
