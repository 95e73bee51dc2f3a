// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// testFollow creates, changes and deletes an app during a watch.
func testFollow(t *testing.T, server *testenv.Environment) {
	namespace := server.CreateNamespace(t)
	app := testenv.BuildCFApp(client.ObjectKey{Namespace: namespace, Name: "first"})
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	server.ExpectCreated(t, app)
	var out, said testenv.LogBuffer
	ctx, end := context.WithCancel(t.Context())
	defer end()
	code := make(chan int)
	go func() {
		code <- Run(ctx, Streams{Out: &out, Err: &said}, []string{"status", "-w", "-n", namespace, "--kubeconfig", server.KubeconfigPath(nil)})
	}()
	expectLine := func(what, pattern string) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			return testenv.ErrorIf(!regexp.MustCompile("(?m)^"+pattern+"$").MatchString(out.String()), "expected %q, found %s%s", pattern, &out, &said)
		})
	}
	expectLine("the table", `NAME +PART +STATE +SINCE +BY +REASON +UNTIL +NEXT\ncfapp/first +app +unknown +- +- +- +- +-`)
	testenv.ExpectPatched(t, server, app, func(a *korifiv1alpha1.CFApp) { a.Labels = map[string]string{"seen": "no"} })
	testenv.ExpectPatched(t, server, app, func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StoppedState })
	expectLine("a change", fmt.Sprintf("cfapp/first +app +unknown +- +- +- +- +kubectl torpor start -n %s cfapp/first", namespace))
	second := testenv.BuildCFApp(client.ObjectKey{Namespace: namespace, Name: "second"})
	server.ExpectCreated(t, second)
	expectLine("a created app", "cfapp/second +app +unknown +.*")
	testenv.ExpectNoError(t, server.Client.Delete(t.Context(), second))
	expectLine("a deleted app", "cfapp/second +app +deleted +.*")
	t.Log("A Deployment is printed as soon as it is stopped.")
	web := newDeployment(t, 3, 3)
	testenv.ExpectNoError(t, unstructured.SetNestedMap(web.Object, map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "example.com/a"}}}},
	}, "spec"))
	web.SetNamespace(namespace)
	server.ExpectCreated(t, web)
	before := web.DeepCopy()
	testenv.ExpectNoError(t, server.Client.Patch(t.Context(), askToStop(web), client.MergeFrom(before)))
	expectLine("a Deployment that is stopped", "deployment/x +replicas +stopping +- +- +- +- +waits for a manager with the feature workloads")
	end()
	if found := exit.Code(<-code); found != exit.Done {
		t.Errorf("expected the exit code 0 at the end of the watch, found %d: %s", found, &said)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 6 {
		t.Errorf("expected a line for each change that shows, found %s", &out)
	}
}

// testFollowNamed follows one app, printed as lines of JSON, as a user who may read only this app.
func testFollowNamed(t *testing.T, server *testenv.Environment) {
	namespace := server.CreateNamespace(t)
	build := func(name string) *korifiv1alpha1.CFApp {
		app := testenv.BuildCFApp(client.ObjectKey{Namespace: namespace, Name: name})
		app.Spec.DesiredState = korifiv1alpha1.StartedState
		server.ExpectCreated(t, app)
		return app
	}
	app, other := build("first"), build("second")
	server.ExpectCreated(t,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{korifiv1alpha1.GroupVersion().Group}, Resources: []string{"cfapps"}, ResourceNames: []string{"first"}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "eve"}},
		})
	server.AwaitRight(t, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "get", Group: korifiv1alpha1.GroupVersion().Group, Resource: "cfapps", Name: "first",
	}, "eve")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var out, said testenv.LogBuffer
	code := make(chan int)
	go func() {
		code <- Run(ctx, Streams{Out: &out, Err: &said}, []string{
			"status", "cfapp/first", "-w", "-o", "json", "--as", "eve", "-n", namespace, "--kubeconfig", server.KubeconfigPath(nil),
		})
	}()
	expectRows := func(what string, stopped ...bool) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			var found []bool
			for line := range strings.Lines(out.String()) {
				var row struct {
					Name    string
					Stopped bool
				}
				if err := json.Unmarshal([]byte(line), &row); err != nil || row.Name != "first" {
					return testenv.ErrorIf(true, "expected an object in each line, found %q and %v", line, err)
				}
				found = append(found, row.Stopped)
			}
			return testenv.ErrorIf(!slices.Equal(found, stopped), "expected %v, found %v: %s", stopped, found, &said)
		})
	}
	expectRows("the first state", false)
	testenv.ExpectPatched(t, server, other, func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StoppedState })
	testenv.ExpectPatched(t, server, app, func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StoppedState })
	expectRows("a change to the app", false, true)
	end()
	testenv.ExpectEqual(t, "exit code", exit.Done, exit.Code(<-code))
	expectRun(t, server.KubeconfigPath(nil), exit.Failed, "expected permission to list CFApps", "status", "cfapp", "-w", "--as", "eve", "-n", namespace)
}

func TestWaitsMayTakeLonger(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]time.Duration{
		"": commandTimeout, "--timeout=20m": commandTimeout, "--wait --timeout=20m": commandTimeout + 20*time.Minute, "--watch": 0,
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Bool(waitFlag, false, "")
		f.Bool(watchFlag, false, "")
		f.Duration(timeoutFlag, time.Minute, "")
		testenv.ExpectNoError(t, f.Parse(strings.Fields(args)))
		testenv.ExpectEqual(t, args, want, commandLimit(f))
	}
	testenv.ExpectEqual(t, "a command without such flags", commandTimeout, commandLimit(pflag.NewFlagSet("", pflag.ContinueOnError)))
}
