// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// listParts returns the controllers of each Deployment. Each part has a leader of its own.
func listParts() []string {
	return []string{"hibernation,sync,machinepools", "clustering,provisioning,backup,restart,spaces,deployments,routes,tasks,lrp", "slumber,workloads,adapters"}
}

// replicasOfPart is the number of managers of each part.
const replicasOfPart = 2

// replica is a manager in a process of its own, with a link of its own to the API server.
type replica struct {
	*testenv.Process
	part, probes, webhook string
	link                  *link
	// outputs are the outputs of earlier processes.
	outputs []string
}

func (w *world) startReplicas(t *testing.T) []*replica {
	t.Helper()
	var all []*replica
	for _, part := range listParts() {
		for range replicasOfPart {
			r := &replica{part: part, probes: testenv.FreeAddress(t), webhook: testenv.FreeAddress(t), link: startLink(t, strings.TrimPrefix(w.Config.Host, "https://"))}
			w.start(t, r)
			all = append(all, r)
		}
	}
	for _, r := range all {
		testenv.Eventually(t, "the managers are ready", func() error { return testenv.ErrorIf(!r.isReady(t.Context()), "not yet") })
	}
	return all
}

// start starts the manager, or starts it again.
func (w *world) start(t *testing.T, r *replica) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.KubeconfigPath(t))
	testenv.ExpectNoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + r.link.address
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	if r.Process != nil {
		r.outputs = append(r.outputs, r.LastOutput())
	}
	r.Process = testenv.StartProcess(t, testenv.TorporPath(t), []string{
		"manager", "--kubeconfig", kubeconfig, "--leader-elect", "--namespace", system, "--controllers", r.part,
		"--metrics-address", "0", "--probe-address", r.probes, "--webhook-address", r.webhook, "--image-registries", "none",
	}, nil)
}

// isReady reports whether the manager is ready, as the kubelet's probe does.
func (r *replica) isReady(ctx context.Context) bool {
	const probeTimeout = time.Second
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.probes+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // Only the status is read.
	return answer.StatusCode == http.StatusOK
}

func (r *replica) freeze(t *testing.T) { r.signal(t, syscall.SIGSTOP) }
func (r *replica) thaw(t *testing.T)   { r.signal(t, syscall.SIGCONT) }

func (r *replica) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(r.PID(), s); err != nil {
		t.Errorf("send %s to a manager: %v", s, err)
	}
}

// link is a connection between a manager and the API server that can be cut.
type link struct {
	address, server string

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func startLink(t *testing.T, server string) *link {
	t.Helper()
	l := &link{server: server, open: map[net.Conn]bool{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testenv.ExpectNoError(t, err)
	l.address = listener.Addr().String()
	var served sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close() // No manager connects at this time.
		l.setCut(true)
		served.Wait()
	})
	served.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { l.serve(from) })
		}
	})
	return l
}

// setCut cuts or restores the link. A cut closes all connections, and new connections fail.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.open {
		_ = c.Close() // The peer observes a reset.
	}
}

// track adds a connection, and reports whether the link is intact.
func (l *link) track(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	l.open[c] = true
	return true
}

func (l *link) serve(from net.Conn) {
	defer l.release(from)
	if !l.track(from) {
		return
	}
	const dialTimeout = 5 * time.Second
	to, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer l.release(to)
	if l.track(to) {
		joinConnections(from, to)
	}
}

func (l *link) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close() // The connection may be closed already.
}

// joinConnections copies in both directions until one of the connections ends.
func joinConnections(a, b net.Conn) {
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		copies.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])        // The copy ends with a connection.
			_, _ = pair[0].Close(), pair[1].Close() // This ends the copy in the other direction.
		})
	}
	copies.Wait()
}

// startService forwards connections to the webhooks of the managers that were ready at the last probe, as a Service
// does.
func (w *world) startService(t *testing.T, replicas []*replica) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", w.webhook)
	testenv.ExpectNoError(t, err)
	var mu sync.Mutex
	var ready []*replica
	next := 0
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var served sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close() // No client connects at this time.
		served.Wait()
	})
	served.Go(func() {
		const probeInterval = 2 * time.Second
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for {
			var found []*replica
			for _, r := range replicas {
				if r.isReady(ctx) {
					found = append(found, r)
				}
			}
			mu.Lock()
			ready = found
			mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	served.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			var target string
			if next++; len(ready) > 0 {
				target = ready[next%len(ready)].webhook
			}
			mu.Unlock()
			served.Go(func() { forward(ctx, from, target) })
		}
	})
}

func forward(ctx context.Context, from net.Conn, target string) {
	defer func() { _ = from.Close() }() // The connection may be closed already.
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	joinConnections(from, to)
}
