// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestRun runs a manager. It is the only test that does, because the process has only one metrics registry.
func TestRun(t *testing.T) {
	env, watches := testenv.StartAPIServer(t).CountWatches()
	o := Options{InsecureMetrics: true, MetricsAddress: testenv.FreeAddress(t), ProbeAddress: testenv.FreeAddress(t), Page: PageOptions{Address: testenv.FreeAddress(t)}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ended := make(chan struct{})
	testenv.RunInBackground(t, "the manager", func(ctx context.Context) error {
		defer close(ended)
		return Run(ctx, env.Config, o)
	})
	ready := func() error { _, err := readURL(t, "http://"+o.ProbeAddress+"/readyz"); return err }

	t.Log("Without any CRD, the manager becomes ready, and its controllers are dormant.")
	testenv.Eventually(t, "ready without CRDs", ready)
	waitForPhase(t, o, "Dormant")

	if _, err := readURL(t, "http://"+o.Page.Address+"/assets/page.css"); err != nil {
		t.Errorf("the page without CRDs: %v", err)
	}

	t.Log("The controller starts each time the CRD is installed, and stops when it is removed.")
	for _, name := range []string{"first", "second"} {
		env.InstallCRDs(t)
		cd := &hivev1.ClusterDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       hivev1.ClusterDeploymentSpec{ClusterName: name, BaseDomain: "example.com"},
		}
		env.ExpectCreated(t, cd)
		env.WaitFor(t, name+" is handled", cd, func() error {
			if c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition); c == nil || c.Reason != hivev1.NotInstalledReason {
				return fmt.Errorf("expected the reason %s, found %+v", hivev1.NotInstalledReason, c)
			}
			return nil
		})
		waitForPhase(t, o, "Running")
		waitForMetric(t, o, `torpor_gate_state{group="provisioning",state="Running"} 1`)
		waitForMetric(t, o, `torpor_cluster_power_state{name="`+name+`",namespace="default",power_state="Unknown"} 1`)
		if err := ready(); err != nil {
			t.Errorf("with the CRD: %v", err)
		}
		expectOneWatchOfPods(t, watches, o)
		env.RemoveCRDs(t)
		waitForPhase(t, o, "Dormant")
		waitForWatches(t, watches, 0)
		if err := ready(); err != nil {
			t.Errorf("after the removal: %v", err)
		}
		if text, err := readURL(t, "http://"+o.MetricsAddress+"/metrics"); err != nil || strings.Contains(text, "torpor_cluster_power_state{") {
			t.Errorf("found the metrics of a cluster whose kind was removed (%v)", err)
		}
	}
	select {
	case <-ended:
		t.Fatal("the manager ended unexpectedly")
	default:
	}
}

// expectOneWatchOfPods waits until the controllers of processes and LRPs have started their watches, and expects one
// watch of Pods.
func expectOneWatchOfPods(t *testing.T, watches *testenv.WatchCounter, o Options) {
	t.Helper()
	waitForMetric(t, o, `torpor_gate_state{group="restart",state="Running"} 1`)
	waitForMetric(t, o, `torpor_gate_state{group="lrp",state="Running"} 1`)
	waitForWatches(t, watches, 1)
	if most := watches.Most("pods", korifiv1alpha1.ProcessGUIDLabel); most != 1 {
		t.Errorf("expected the Pods of apps to be watched once, found %d watches", most)
	}
}

func waitForWatches(t *testing.T, watches *testenv.WatchCounter, want int) {
	t.Helper()
	for _, resource := range []string{"pods", "statefulsets", "poddisruptionbudgets"} {
		testenv.Eventually(t, "watches of "+resource, func() error {
			found := watches.Open(resource, korifiv1alpha1.ProcessGUIDLabel)
			return testenv.ErrorIf(found != want, "expected %d, found %d", want, found)
		})
	}
}

func waitForPhase(t *testing.T, o Options, phase string) {
	t.Helper()
	waitForMetric(t, o, `torpor_gate_state{group="hibernation",state="`+phase+`"} 1`)
}

func waitForMetric(t *testing.T, o Options, line string) {
	t.Helper()
	testenv.Eventually(t, line, func() error {
		text, err := readURL(t, "http://"+o.MetricsAddress+"/metrics")
		if err == nil && !strings.Contains(text, line+"\n") {
			err = errors.New("expected the line, found none")
		}
		return err
	})
}

func readURL(t *testing.T, url string) (string, error) {
	t.Helper()
	const requestTimeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("expected 200, found %s: %s", answer.Status, text)
	}
	return string(text), nil
}
