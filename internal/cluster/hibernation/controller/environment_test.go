// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	"github.com/torpor-dev/torpor/internal/httpguard"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	leaseInterval = 200 * time.Millisecond
	readyNodeName = "beating-heart"
)

// env is a hub, a simulated cloud and a manager with the controller. The hub is also the target cluster of its
// ClusterDeployments, with one node that renews its lease.
type env struct {
	*testenv.Environment
	cloud  *testenv.CloudServer
	counts *callCounts
	log    testenv.LogBuffer
	// metrics are the metrics of the manager that was started last.
	metrics *Metrics
	// witness counts wrong stops. It is nil if the test does not need it.
	witness *stopWitness
	// usesHiveReasons applies to managers that are started later.
	usesHiveReasons bool
}

var (
	suite testenv.Suite
	hubs  = testenv.NewPool(&suite, newHub)
)

func newEnv(t *testing.T, cloudFlags ...string) *env {
	t.Helper()
	e := &env{
		Environment: hubs.Borrow(t), cloud: testenv.StartCloud(t, append(cloudFlags, "--access-keys", testenv.AccessKey)...),
		counts: newCounts(),
	}
	e.renewLease(t)
	t.Cleanup(func() { e.checkSecretsStayHidden(t) })
	return e
}

func clouds() map[string]actuator.Actuator {
	listed, err := httpguard.ParseEndpoints([]string{"127.0.0.0/8"})
	if err != nil {
		panic(err)
	}
	return map[string]actuator.Actuator{"aws": aws.New(aws.Options{Endpoints: listed})}
}

// startManager runs a manager for the rest of the test, or until stop is called.
func (e *env) startManager(t *testing.T, actuators map[string]actuator.Actuator) (stop func()) {
	t.Helper()
	e.metrics = NewMetrics()
	setup := Controller{Actuators: actuators, Clock: clock.RealClock{}, Metrics: e.metrics, UsesHiveReasons: e.usesHiveReasons}.SetupWithManager
	return testenv.StartManager(t, e.Environment, setup, func(o *manager.Options) {
		o.Logger = e.log.Logger(9)
		o.NewClient = func(cfg *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.New(cfg, o)
			return countingClient{Client: c, counts: e.counts}, err
		}
	})
}

// renewLease creates the node and renews its lease until the test ends.
func (e *env) renewLease(t *testing.T) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: readyNodeName},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.77.0.1"}},
		},
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: readyNodeName}}
	testenv.Eventually(t, "a node with a lease", func() error {
		return errors.Join(client.IgnoreAlreadyExists(e.Client.Create(t.Context(), node.DeepCopy())), client.IgnoreAlreadyExists(e.Client.Create(t.Context(), lease.DeepCopy())))
	})
	hub := e.Client // A test may temporarily replace the client to count its own requests.
	testenv.RunInBackground(t, "the node's lease", func(ctx context.Context) error {
		tick := time.NewTicker(leaseInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			before := lease.DeepCopy()
			lease.Spec.RenewTime = new(metav1.NowMicro())
			_ = hub.Patch(ctx, lease, client.MergeFrom(before)) // A failed renewal is repeated with the next one, as in a kubelet.
		}
	})
}

// checkSecretsStayHidden searches all user-visible output for secrets.
func (e *env) checkSecretsStayHidden(t *testing.T) {
	t.Helper()
	kubeconfig, err := os.ReadFile(e.KubeconfigPath(t))
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
		t.Errorf("expected %d secrets to search for, found %d", expected, len(secrets))
	}
	for place, text := range map[string]string{
		"the log": e.log.String(), "an event": e.listAsJSON(t, &eventsv1.EventList{}), "a ClusterDeployment": e.listAsJSON(t, &hivev1.ClusterDeploymentList{}),
	} {
		if text == "" {
			t.Errorf("%s: nothing to search", place)
		}
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows secret number %d", place, i)
			}
		}
	}
}

func (e *env) listAsJSON(t *testing.T, list client.ObjectList) string {
	t.Helper()
	if err := e.Client.List(context.WithoutCancel(t.Context()), list); err != nil {
		t.Errorf("list %T: %v", list, err)
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
