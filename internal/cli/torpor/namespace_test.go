// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// testNamespaceWaves stops and starts a namespace with an app in each of two waves of a Slumber. The test writes the
// status of the apps, as the manager would.
func testNamespaceWaves(t *testing.T, server *testenv.Environment) {
	namespace := server.CreateNamespace(t)
	apps := map[string]*korifiv1alpha1.CFApp{}
	for _, name := range []string{"back", "front"} {
		app := testenv.BuildCFApp(client.ObjectKey{Namespace: namespace, Name: name})
		app.Labels = map[string]string{"tier": name}
		app.Spec.DisplayName, app.Spec.DesiredState = name, korifiv1alpha1.StartedState
		server.ExpectCreated(t, app)
		apps[name] = app
	}
	wave := func(name string) torporv1alpha1.SlumberWave {
		return torporv1alpha1.SlumberWave{Name: name, Targets: []torporv1alpha1.SlumberTarget{{Kind: "CFApp", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": name}}}}}
	}
	server.ExpectCreated(t, &torporv1alpha1.Slumber{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leap-days"},
		Spec: torporv1alpha1.SlumberSpec{
			Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 0 29 2 *", Wake: "0 12 29 2 *"}}, Waves: []torporv1alpha1.SlumberWave{wave("front"), wave("back")},
		},
	})
	expectWanted := func(name string, want korifiv1alpha1.AppState) {
		t.Helper()
		testenv.Eventually(t, "the request of "+name, func() error {
			err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(apps[name]), apps[name])
			return testenv.ErrorIf(err != nil || apps[name].Spec.DesiredState != want, "expected %s, found %s (%v)", want, apps[name].Spec.DesiredState, err)
		})
	}
	report := func(name, reason string, stops ...torporv1alpha1.StopRecord) {
		t.Helper()
		app := apps[name]
		before := app.DeepCopy()
		app.Status.Stops = stops
		app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now())}}
		testenv.ExpectNoError(t, server.Client.Status().Patch(t.Context(), app, client.MergeFrom(before)))
	}
	for name := range apps {
		report(name, korifiv1alpha1.RunningReason)
	}
	stop := torporv1alpha1.StopRecord{Since: metav1.NewTime(time.Now().Truncate(time.Second)), By: "alice", Requested: true}
	ended := stoprecord.NextRecords([]torporv1alpha1.StopRecord{stop}, stoprecord.Request{By: "alice", Version: "started"}, time.Now())
	for _, step := range []struct {
		verb          string
		first, second string
		want, before  korifiv1alpha1.AppState
		reason        string
		record        torporv1alpha1.StopRecord
	}{
		{"stop", "front", "back", korifiv1alpha1.StoppedState, korifiv1alpha1.StartedState, korifiv1alpha1.StoppedReason, stop},
		{"start", "back", "front", korifiv1alpha1.StartedState, korifiv1alpha1.StoppedState, korifiv1alpha1.RunningReason, ended[0]},
	} {
		var out, said testenv.LogBuffer
		code := make(chan int, 1)
		go func() {
			code <- Run(t.Context(), Streams{Out: &out, Err: &said}, []string{step.verb, "namespace/" + namespace, "--kubeconfig", server.KubeconfigPath(nil)})
		}()
		expectWanted(step.first, step.want)
		t.Log("The command reports that it waits for the first wave, and has not changed the second one.")
		testenv.Eventually(t, "the progress", func() error {
			return testenv.ErrorIf(!strings.Contains(said.String(), "wave 1 of 2: 1 object\nwaiting for cfapp/"+step.first+": "), "found %s", &said)
		})
		expectWanted(step.second, step.before)
		report(step.first, step.reason, step.record)
		expectWanted(step.second, step.want)
		if got := <-code; exit.Code(got) != exit.Done {
			t.Fatalf("%s: expected exit code 0, found %d: %s%s", step.verb, got, &out, &said)
		}
		report(step.second, step.reason, step.record)
	}
}

// TestStopOfANamespaceLeavesOutManagers has an installation of two Deployments, each of which leads a part, and a manager
// of an earlier release, which leads all parts.
func TestStopOfANamespaceLeavesOutManagers(t *testing.T) {
	t.Parallel()
	deployments := kinds.ListWorkloads()[0]
	leader := func(part, deployment string) lease.Leader {
		return lease.Leader{Part: part, Scope: &lease.Scope{Deployment: deployment}}
	}
	parts := lease.Acting{Installation: "torpor-system", Leaders: []lease.Leader{leader("clusters", "torpor-clusters"), leader("apps", "torpor-apps")}}
	for name, row := range map[string]struct {
		acting          lease.Acting
		namespace, name string
		want            bool
	}{
		"Deployment that leads the first part: left out":                    {parts, "torpor-system", "torpor-clusters", true},
		"Deployment that leads the second part: left out":                   {parts, "torpor-system", "torpor-apps", true},
		"manager of an earlier release: left out":                           {lease.Acting{Installation: "torpor-system", Scope: &lease.Scope{Deployment: "torpor"}}, "torpor-system", "torpor", true},
		"other Deployment of the installation: stopped":                     {parts, "torpor-system", "shop", false},
		"Deployment with a leader's name in another namespace: stopped":     {parts, "shop", "torpor-apps", false},
		"Deployment of a hub whose leader's Deployment is unknown: stopped": {lease.Acting{Installation: "torpor-system", Leaders: []lease.Leader{{Part: "apps"}}}, "torpor-system", "torpor", false},
		"Deployment of a hub without a manager that holds a Lease: stopped": {lease.Acting{}, "torpor-system", "torpor", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scan := &namespaceScan{acting: row.acting}
			if found := scan.runsManager(target{kind: deployments, namespace: row.namespace, name: row.name}); found != row.want {
				t.Errorf("expected that it runs the manager: %t, found %t", row.want, found)
			}
		})
	}
}
