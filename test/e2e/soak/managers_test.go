// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// deployment is a Deployment of managers.
type deployment struct {
	name, controllers string
	// namespace is the only namespace that the managers watch; empty means all namespaces.
	namespace string
}

// listDeployments returns Deployments that share the controllers by parts, and the clusters by namespaces.
func listDeployments() []deployment {
	all := []deployment{
		{"switches", "slumber,workloads,adapters", ""},
		{"databases", "clustering", ""},
		{"apps", "restart,spaces,deployments,routes,tasks,lrp", ""},
	}
	for _, namespace := range listFleets() {
		all = append(all, deployment{"clusters of " + namespace, "hibernation,sync,machinepools", namespace})
	}
	return all
}

// replicasOfDeployment is the number of managers of each Deployment.
const replicasOfDeployment = 2

// replica is a manager in a process of its own, with a link of its own to the API server.
type replica struct {
	deployment

	probes, webhook string
	link            *link

	mu      sync.Mutex
	process *testenv.Process
	// isDown is true while a fault keeps the manager from running.
	isDown bool
	// outputs are the outputs of earlier processes.
	outputs []string
}

func (w *world) startReplicas(t *testing.T) []*replica {
	t.Helper()
	var all []*replica
	for _, d := range listDeployments() {
		for range replicasOfDeployment {
			r := &replica{deployment: d, probes: testenv.FreeAddress(t), webhook: "0", link: startLink(t, strings.TrimPrefix(w.Config.Host, "https://"))}
			if d.namespace == "" {
				r.webhook = testenv.FreeAddress(t)
			}
			w.start(t, r)
			all = append(all, r)
		}
	}
	for _, r := range all {
		r.waitUntilReady(t)
	}
	return all
}

func (r *replica) waitUntilReady(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "a manager of "+r.name+" is ready", func() error { return testenv.ErrorIf(!r.isReady(t.Context()), "not yet") })
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.outputs = append(r.outputs, r.process.LastOutput())
	}
	r.isDown = false
	r.process = testenv.StartProcess(t, testenv.TorporPath(t), []string{
		"manager", "--kubeconfig", kubeconfig, "--leader-elect", "--namespace", system, "--controllers", r.controllers, "--watch-namespaces", r.namespace,
		"--metrics-address", "0", "--probe-address", r.probes, "--webhook-address", r.webhook, "--image-registries", "none",
	}, nil)
}

// stop ends the manager with SIGTERM or SIGKILL, until it is started again.
func (r *replica) stop(t *testing.T, isKill bool) {
	t.Helper()
	r.mu.Lock()
	r.isDown = true
	p := r.process
	r.mu.Unlock()
	if isKill {
		p.KillAtOnce(t)
	} else {
		p.Stop(t)
	}
}

// hasEnded reports whether the manager has ended although no fault keeps it from running.
func (r *replica) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.process.ExitChannel():
		return !r.isDown
	default:
		return false
	}
}

func (r *replica) listOutputs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(slices.Clone(r.outputs), r.process.LastOutput())
}

// restartEnded starts managers that have ended, as the kubelet does: a manager that has lost its Lease ends.
func (s *soak) restartEnded(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, r := range s.replicas {
			if r.hasEnded() {
				t.Logf("%s: a manager of %s has ended, and is started", time.Now().Format(time.TimeOnly), r.name)
				s.ended.Add(1)
				s.start(t, r)
			}
		}
	}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := syscall.Kill(r.process.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("send %s to a manager: %v", s, err)
	}
}

// link is a connection between a manager and the API server that can be cut.
type link struct {
	address, server string

	mu sync.Mutex
	// cut is closed when the link is cut, and replaced when the link is restored.
	cut chan struct{}
}

func startLink(t *testing.T, server string) *link {
	t.Helper()
	l := &link{server: server, cut: make(chan struct{})}
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
	if !cut {
		l.cut = make(chan struct{})
		return
	}
	select {
	case <-l.cut: // The test has failed while the link was cut.
	default:
		close(l.cut)
	}
}

func (l *link) serve(from net.Conn) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	select {
	case <-cut:
		cancel()
	default:
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	testenv.ForwardConnection(ctx, from, l.server)
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
				if r.webhook != "0" && r.isReady(ctx) {
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
			served.Go(func() { testenv.ForwardConnection(ctx, from, target) })
		}
	})
}
