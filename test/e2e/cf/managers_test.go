// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// replica is a manager in its own process, with an administrator's permissions.
type replica struct {
	*testenv.Process
	probes, webhook string
}

func startReplica(t *testing.T, hub *testenv.Environment, namespace string) *replica {
	t.Helper()
	binary := testenv.TorporPath(t)
	r := &replica{probes: testenv.FreeAddress(t), webhook: testenv.FreeAddress(t)}
	r.Process = testenv.StartProcess(t, binary, []string{
		"manager", "--kubeconfig", hub.KubeconfigPath(t), "--leader-elect", "--namespace", namespace,
		"--metrics-address", "0", "--probe-address", r.probes, "--webhook-address", r.webhook,
	}, nil)
	return r
}

// checkReady returns an error with the answer of a readiness check unless it succeeds; an empty name means all
// checks.
func (r *replica) checkReady(ctx context.Context, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.probes+"/readyz/"+name, http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // The body was only read.
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("found %s: %s (%w)", answer.Status, text, err)
	}
	return nil
}

func (r *replica) waitUntilReady(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the manager is ready", func() error { return r.checkReady(t.Context(), "") })
}

// service forwards each connection to a replica that was ready a short time ago, as a Service does: nodes learn with
// a delay that a replica has ended.
type service struct {
	mu    sync.Mutex
	ready []*replica
	// changes counts the changes of the ready replicas, and applied is the newest change that the nodes know.
	changes, applied int
	next             int
	served           sync.WaitGroup
}

// serviceLag is the delay after which nodes learn of a change.
const serviceLag = 2 * time.Second

func startService(t *testing.T, address string) *service {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		_ = listener.Close() // No client connects at this time.
		s.served.Wait()
	})
	s.served.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			s.served.Go(func() { s.lead(ctx, connection) })
		}
	})
	return s
}

func (s *service) lead(ctx context.Context, from net.Conn) {
	s.mu.Lock()
	s.next++
	if len(s.ready) == 0 {
		s.mu.Unlock()
		_ = from.Close() // The client observes that no replica is ready.
		return
	}
	target := s.ready[s.next%len(s.ready)].webhook
	s.mu.Unlock()
	testenv.ForwardConnection(ctx, from, target)
}

// setReady sets the ready replicas after serviceLag. Timers that expire together may run in any order, but nodes never
// learn of an older change after a newer one.
func (s *service) setReady(t *testing.T, replicas ...*replica) {
	t.Helper()
	s.mu.Lock()
	s.changes++
	change := s.changes
	s.mu.Unlock()
	s.served.Add(1)
	time.AfterFunc(serviceLag, func() {
		defer s.served.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if change > s.applied {
			s.ready, s.applied = replicas, change
		}
	})
}

// An app is patched twenty times a second while both managers are replaced, one after the other.
func TestRollingUpdateOfTheManagersRefusesNothing(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	address := testenv.FreeAddress(t)
	hub.InstallWebhooks(t, "https://"+address, nil)
	service := startService(t, address)
	first, second := startReplica(t, hub, system), startReplica(t, hub, system)
	first.waitUntilReady(t)
	second.waitUntilReady(t)
	service.setReady(t, first, second)
	hub.WaitForAppAdmission(t, system, korifiv1alpha1.FirstRevision)
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: system, Name: "app"})
	hub.ExpectCreated(t, app)

	patches, refusals := 0, []error{}
	stop := testenv.RunInBackground(t, "the patches", func(ctx context.Context) error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			patch := fmt.Appendf(nil, `{"spec":{"desiredState":%q}}`, [...]korifiv1alpha1.AppState{korifiv1alpha1.StoppedState, korifiv1alpha1.StartedState}[patches%2])
			patches++
			if err := hub.Client.Patch(context.WithoutCancel(ctx), app.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
				refusals = append(refusals, err)
			}
		}
	})
	replace := func(old, other *replica) *replica {
		t.Helper()
		successor := startReplica(t, hub, system)
		successor.waitUntilReady(t)
		service.setReady(t, old, other, successor)
		// As in Kubernetes, the signal is sent and the endpoint is removed at the same time.
		service.setReady(t, other, successor)
		old.Stop(t)
		return successor
	}
	third := replace(first, second)
	replace(second, third)
	stop()
	if len(refusals) > 0 {
		t.Errorf("expected no refusal of %d patches, found %d; the first: %v", patches, len(refusals), refusals[0])
	}
	t.Logf("%d patches, %d refused", patches, len(refusals))
}

// The second installation in a cluster writes no configuration and handles no object, and reports the reason.
func TestOnlyOneOfTwoInstallationsActs(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	hub.ApplyManifest(t, "webhook/manifests.yaml")
	first := startReplica(t, hub, system)
	first.waitUntilReady(t)
	second := startReplica(t, hub, hub.CreateNamespace(t))
	for check, words := range map[string]string{
		"installation":  "another installation of Torpor is active in this cluster: the installation in namespace " + system + " holds the Lease kube-system/torpor",
		"webhook-trust": "MutatingWebhookConfiguration torpor to point to the Service",
	} {
		testenv.Eventually(t, "the second manager reports why it does not act", func() error {
			err := second.checkReady(t.Context(), check)
			if err == nil || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("expected %q, found %w", words, err)
			}
			return nil
		})
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "torpor"}}
	versions := map[string]bool{}
	testenv.Consistently(t, 25*time.Second, "the configuration does not change", func() error {
		if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		if versions[config.ResourceVersion] = true; len(versions) > 2 {
			return fmt.Errorf("expected at most one change, found %d", len(versions)-1)
		}
		return nil
	})
	t.Logf("%d changes to the configuration", len(versions)-1)
	first.waitUntilReady(t)
	if found := strings.Count(second.LastOutput(), "This installation has become active or inactive"); found != 1 {
		t.Errorf("expected one line in the log of the second manager, found %d", found)
	}
}
