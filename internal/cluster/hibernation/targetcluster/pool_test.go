// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// poolServer is an API server that counts connections, and can stop responding.
type poolServer struct {
	*httptest.Server
	connections, approvals atomic.Int64
	isSilent, hangs        atomic.Bool
	version                string
}

func startPoolServer(t *testing.T) *poolServer {
	t.Helper()
	s := &poolServer{}
	ended := make(chan struct{})
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.hangs.Load():
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		case s.isSilent.Load():
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == versionPath && s.version != "":
			_, _ = fmt.Fprintf(w, `{"status":{"desired":{"version":%q}}}`, s.version)
		case r.URL.Path == versionPath, strings.HasPrefix(r.URL.Path, "/apis/machine"):
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPatch:
			s.approvals.Add(1)
		case r.URL.Path != "/readyz":
			_, _ = w.Write([]byte(`{"items":[]}`))
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() {
		close(ended)
		s.Close()
	})
	return s
}

// testPool is a pool with the clusters of a test. The keys are the names of the kubeconfig Secrets.
type testPool struct {
	*Pool
	t        *testing.T
	mu       sync.Mutex
	servers  map[string]*poolServer
	enqueued chan types.NamespacedName
	passes   atomic.Int64
}

func startPool(t *testing.T) *testPool {
	t.Helper()
	p := &testPool{Pool: NewPool(Dialer{AllowInsecure: true}, clock.RealClock{}), t: t, servers: map[string]*poolServer{}, enqueued: make(chan types.NamespacedName, 1000)}
	p.ReadKubeconfig = func(_ context.Context, _, secret string) ([]byte, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.servers[secret] == nil {
			return nil, &KubeconfigError{Message: "no Secret " + secret}
		}
		return kubeconfig(t, p.servers[secret].URL, nil), nil
	}
	p.Enqueue = func(cluster types.NamespacedName, _ bool) {
		p.passes.Add(1)
		p.enqueued <- cluster
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Start(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *testPool) add(name string) *poolServer {
	s := startPoolServer(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers[name] = s
	return s
}

func question(name string, depth Depth) Question {
	return Question{Cluster: types.NamespacedName{Namespace: "ns", Name: name}, Secret: name, Depth: depth}
}

// look requests a poll until a result exists, as passes do.
func (p *testPool) look(q Question) Look {
	p.t.Helper()
	for {
		if seen, isKnown := p.RequestLook(q); isKnown {
			return seen
		}
		p.await(q.Cluster.Name)
	}
}

func (p *testPool) await(name string) {
	p.t.Helper()
	for {
		select {
		case cluster := <-p.enqueued:
			if cluster.Name == name {
				return
			}
		case <-time.After(time.Minute):
			p.t.Fatalf("%s was not enqueued", name)
		}
	}
}

func TestAConnectionLastsAsLongAsItsClusterIsAwake(t *testing.T) {
	p := startPool(t)
	s := p.add("one")
	q := question("one", ReadRequests)
	for range 3 {
		if seen := p.look(q); seen.Err != nil {
			t.Fatal(seen.Err)
		}
	}
	expectConnections(t, s, 1, "several polls")
	q.WakeUp = time.Unix(1, 0)
	p.look(q)
	expectConnections(t, s, 2, "another resume")
	s.isSilent.Store(true)
	if seen := p.look(q); seen.Err == nil || DescribeError(seen.Err) != "the server responds with 500" {
		t.Errorf("an unreachable cluster: %v", seen.Err)
	}
	s.isSilent.Store(false)
	p.look(q)
	expectConnections(t, s, 3, "an error")
	p.Rest(q.Cluster)
	p.look(q)
	expectConnections(t, s, 4, "a rest")
}

func (p *testPool) awaitSilences(count float64) {
	p.t.Helper()
	testenv.Eventually(p.t, fmt.Sprintf("%v polls had no answer", count), func() error {
		got := p.ReadCounts().Silences
		return testenv.ErrorIf(got < count, "found %v", got)
	})
}

func expectConnections(t *testing.T, s *poolServer, want int64, after string) {
	t.Helper()
	if got := s.connections.Load(); got != want {
		t.Errorf("after %s there were %d connections, want %d", after, got, want)
	}
}

// TestAClusterThatIsSilentAsBeforeHasNoPass watches an unreachable cluster, which is enqueued only after a change.
func TestAClusterThatIsSilentAsBeforeHasNoPass(t *testing.T) {
	p := startPool(t)
	s := p.add("one")
	s.isSilent.Store(true)
	q := question("one", ReadAPI)
	p.look(q)
	passes := p.passes.Load()
	p.Watch(q.Cluster, time.Millisecond)
	p.awaitSilences(p.ReadCounts().Silences + 5)
	if got := p.passes.Load(); got != passes {
		t.Errorf("%d passes while nothing changed", got-passes)
	}
	s.isSilent.Store(false)
	p.await("one")
	if seen, isKnown := p.RequestLook(q); !isKnown || seen.Err != nil {
		t.Errorf("once it answers: %+v, %t", seen, isKnown)
	}
}

// TestHangingClustersDoNotDelayOthers uses more unresponsive clusters than are polled in parallel.
func TestHangingClustersDoNotDelayOthers(t *testing.T) {
	p := startPool(t)
	hung := p.add("hung")
	hung.hangs.Store(true)
	for i := range promptLooks + patientLooks {
		q := question("hung", ReadAPI)
		q.Cluster.Name = fmt.Sprintf("hung-%d", i)
		p.RequestLook(q)
	}
	p.awaitSilences(promptLooks)
	for i := range promptLooks + patientLooks {
		q := question("hung", ReadAPI)
		q.Cluster.Name = fmt.Sprintf("hung-%d", i)
		p.RequestLook(q)
		p.RequestLook(q)
	}
	p.add("quick")
	before := p.ReadCounts().Silences
	if seen := p.look(question("quick", ReadAPI)); seen.Err != nil {
		t.Error(seen.Err)
	}
	if ended := p.ReadCounts().Silences - before; ended >= promptLooks {
		t.Errorf("the poll had to wait for the end of %v others", ended)
	}
}

func TestRequestedApprovalsAreMadeAndReported(t *testing.T) {
	p := startPool(t)
	s := p.add("one")
	q := question("one", ReadRequests)
	p.look(q)
	requests := []certificatesv1.CertificateSigningRequest{{ObjectMeta: metav1.ObjectMeta{Name: "csr-0", UID: "u0"}}, {ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u1"}}}
	p.Approve(q.Cluster, requests)
	seen := p.look(q)
	if len(seen.Approvals) != 2 || !seen.Approvals[0].IsMade || !seen.Approvals[1].IsMade || s.approvals.Load() != 2 {
		t.Errorf("found %+v and %d approvals, want two that were made", seen.Approvals, s.approvals.Load())
	}
	s.isSilent.Store(true)
	p.Approve(q.Cluster, requests[:1])
	if seen := p.look(q); len(seen.Approvals) != 1 || seen.Approvals[0].IsMade || seen.Approvals[0].Err == nil {
		t.Errorf("an unreachable cluster: %+v", seen.Approvals)
	}
}

func TestTheVersionIsReadWhereThereIsOne(t *testing.T) {
	p := startPool(t)
	p.add("openshift").version = "4.16.3"
	p.add("plain")
	for name, want := range map[string]string{"openshift": "4.16.3", "plain": ""} {
		q := question(name, ReadAPI)
		if seen := p.look(q); seen.Version != want || p.IsPlain(q.Cluster) != (want == "") {
			t.Errorf("%s: version %q, plain %t", name, seen.Version, p.IsPlain(q.Cluster))
		}
	}
	q := question("nobody", ReadAPI)
	seen := p.look(q)
	if _, isMissing := errors.AsType[*KubeconfigError](seen.Err); !isMissing || !IsLasting(seen.Err) || p.IsPlain(q.Cluster) {
		t.Errorf("without a Secret: %v", seen.Err)
	}
}

// TestAKubeconfigIsReadBeforeItIsNeeded counts the reads of the kubeconfig Secret, before and after the first machine
// of a resuming cluster runs.
func TestAKubeconfigIsReadBeforeItIsNeeded(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	p := NewPool(Dialer{AllowInsecure: true}, now)
	s := startPoolServer(t)
	reads := 0
	p.ReadKubeconfig = func(context.Context, string, string) ([]byte, error) {
		reads++
		return kubeconfig(t, s.URL, nil), nil
	}
	passes := 0
	p.Enqueue = func(types.NamespacedName, bool) { passes++ }
	q := question("one", ReadRequests)
	q.WakeUp = now.Now()
	p.Prepare(q)
	expectNoJob(t, p, q.Cluster, "orders to start a fleet come first")
	now.SetTime(now.Now().Add(prepareDelay))
	p.Prepare(q)
	p.lookOnce(t, q.Cluster)
	if reads != 1 || passes != 0 || s.connections.Load() != 0 || p.ReadCounts() != (PoolCounts{}) {
		t.Errorf("expected one read, no connection and no pass, found %d, %d, %d and %+v", reads, s.connections.Load(), passes, p.ReadCounts())
	}
	now.SetTime(now.Now().Add(kubeconfigAge / 2))
	p.RequestLook(q)
	p.lookOnce(t, q.Cluster)
	if seen, isKnown := p.RequestLook(q); !isKnown || seen.Err != nil || reads != 1 || s.connections.Load() != 1 {
		t.Errorf("expected an answer by one connection and no other read, found %+v, %d and %d", seen, s.connections.Load(), reads)
	}
	// Another resume reuses neither kubeconfig nor connection of the previous one.
	q.WakeUp = now.Now()
	p.Prepare(q)
	now.SetTime(now.Now().Add(prepareDelay))
	p.lookOnce(t, q.Cluster)
	if reads != 2 {
		t.Errorf("expected the kubeconfig to be read for each resume, found %d reads", reads)
	}
}

// TestProbesWithoutAWaitingPassHaveLowerPriority uses a settled cluster, a cluster that is probed more often, and a
// cluster whose pass waits for a poll.
func TestProbesWithoutAWaitingPassHaveLowerPriority(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	p := NewPool(Dialer{AllowInsecure: true}, now)
	s := startPoolServer(t)
	p.ReadKubeconfig = func(context.Context, string, string) ([]byte, error) { return kubeconfig(t, s.URL, nil), nil }
	areCalm := map[string]bool{}
	p.Enqueue = func(cluster types.NamespacedName, isCalm bool) { areCalm[cluster.Name] = isCalm }
	calm, waking, awaited := question("calm", ReadAPI), question("waking", ReadAPI), question("awaited", ReadAPI)
	for _, q := range []Question{calm, waking} {
		p.RequestLook(q)
		p.lookOnce(t, q.Cluster)
		p.RequestLook(q)
	}
	p.Watch(calm.Cluster, calmInterval)
	p.Watch(waking.Cluster, calmInterval/10)
	p.RequestLook(awaited)
	now.SetTime(now.Now().Add(calmInterval))
	expectNoJob(t, p, calm.Cluster, "another pass waits for its cluster")
	p.lookOnce(t, waking.Cluster)
	now.SetTime(now.Now().Add(calmInterval))
	p.lookOnce(t, calm.Cluster) // After a second interval, the poll runs although another pass still waits.
	p.RequestLook(calm)
	p.Watch(calm.Cluster, calmInterval)
	p.lookOnce(t, awaited.Cluster)
	now.SetTime(now.Now().Add(calmInterval))
	p.lookOnce(t, calm.Cluster)
	if !areCalm["calm"] || areCalm["waking"] || areCalm["awaited"] {
		t.Errorf("expected only the pass of calm to be a calm one, found %v", areCalm)
	}
}

func expectNoJob(t *testing.T, p *Pool, cluster types.NamespacedName, because string) {
	t.Helper()
	if p.clusters.RunDue(t.Context(), cluster) {
		t.Errorf("expected no poll of %s, because %s", cluster.Name, because)
	}
}

// lookOnce runs a due poll of a cluster, in a pool that was not started.
func (p *Pool) lookOnce(t *testing.T, cluster types.NamespacedName) {
	t.Helper()
	if !p.clusters.RunDue(t.Context(), cluster) {
		t.Fatalf("expected %s to be due", cluster.Name)
	}
}
