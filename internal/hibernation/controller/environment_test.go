// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	leaseInterval = 200 * time.Millisecond
	readyNodeName = "beating-heart"
)

// testEnvironment is a hub, a simulated cloud and a manager with the controller. The hub is the target of its own
// ClusterDeployments too: it has one node with a beating heart.
type testEnvironment struct {
	hub    *testenv.Environment
	cloud  *testenv.CloudServer
	counts *callCounts
	log    *logBuffer
	// metrics are those of the manager that was started last.
	metrics *Metrics
}

func newTestEnvironment(t *testing.T, cloudFlags ...string) *testEnvironment {
	t.Helper()
	w := &testEnvironment{
		hub: testenv.StartAPIServer(t), cloud: testenv.StartCloud(t, append(cloudFlags, "--access-keys", testenv.AccessKey)...),
		counts: newCounts(), log: &logBuffer{},
	}
	w.hub.InstallCRDs(t)
	w.renewLease(t)
	t.Cleanup(func() { w.checkSecretsStayHidden(t) })
	return w
}

func clouds() map[string]actuator.Actuator {
	return map[string]actuator.Actuator{"aws": aws.New(aws.Options{})}
}

// startManager runs a manager for the rest of the test, or until stop.
func (w *testEnvironment) startManager(t *testing.T, actuators map[string]actuator.Actuator) (stop func()) {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), hivev1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(w.hub.Config, manager.Options{
		Scheme: known, Logger: funcr.New(w.log.write, funcr.Options{Verbosity: 9}),
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		NewClient: func(cfg *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.New(cfg, o)
			return countingClient{Client: c, counts: w.counts}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.metrics = NewMetrics()
	if err := (Controller{Actuators: actuators, Clock: clock.RealClock{}, Metrics: w.metrics}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// renewLease makes the node and renews its lease until the test ends.
func (w *testEnvironment) renewLease(t *testing.T) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: readyNodeName},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.77.0.1"}},
		},
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: readyNodeName}}
	ctx := context.WithoutCancel(t.Context())
	testenv.Eventually(t, "a node with a lease", func() error {
		return errors.Join(client.IgnoreAlreadyExists(w.hub.Client.Create(ctx, node)), client.IgnoreAlreadyExists(w.hub.Client.Create(ctx, lease)))
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(leaseInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			before := lease.DeepCopy()
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if err := w.hub.Client.Patch(ctx, lease, client.MergeFrom(before)); err != nil {
				t.Errorf("renew lease: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// checkSecretsStayHidden looks for what must not be seen in everything that anybody can see.
func (w *testEnvironment) checkSecretsStayHidden(t *testing.T) {
	t.Helper()
	kubeconfig, err := os.ReadFile(w.hub.KubeconfigPath(t))
	if err != nil {
		t.Error(err)
		return
	}
	secrets := []string{testenv.SecretKey, testenv.AccessKey, wrongKey}
	for line := range strings.Lines(string(kubeconfig)) {
		if _, key, ok := strings.Cut(line, "client-key-data: "); ok {
			secrets = append(secrets, strings.TrimSpace(key))
		}
	}
	const expected = 4
	if len(secrets) != expected {
		t.Errorf("expected %d secrets to look for, found %d", expected, len(secrets))
	}
	for place, text := range map[string]string{
		"the log": w.log.String(), "an event": w.listAsJSON(t, "events.k8s.io/v1", "EventList"), "a ClusterDeployment": w.listAsJSON(t, "hive.openshift.io/v1", "ClusterDeploymentList"),
	} {
		if text == "" {
			t.Errorf("%s: nothing to look at", place)
		}
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows secret number %d", place, i)
			}
		}
	}
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) write(prefix, args string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintln(&j.text, prefix, args)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
