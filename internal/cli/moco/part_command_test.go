// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// testConflicts lets another writer change the cluster between the plugin's read and its write.
func testConflicts(t *testing.T, server *testenv.Environment) {
	t.Parallel()
	for name, test := range map[string]struct {
		verb      string
		conflicts int
		code      exit.Code
		stopped   bool
	}{
		"a stop is written despite any number of concurrent writes":        {verb: "stop", conflicts: 1000, stopped: true},
		"a start is checked and tried again after each of three conflicts": {verb: "start", conflicts: 3},
		"a start fails after too many conflicts":                           {verb: "start", conflicts: 1000, code: exit.Failed, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := createTestCluster(t, server)
			if test.verb == "start" {
				if got := runWith(t, kube, "stop", "clustering", "test"); got.code != exit.Done {
					t.Fatalf("found exit code %d (%s), want a stop", got.code, got.err)
				}
			}
			left := test.conflicts
			direct, ok := kube.Client.(client.WithWatch)
			if !ok {
				var err error
				if direct, err = client.NewWithWatch(kube.config, client.Options{Scheme: kube.Scheme(), Mapper: kube.RESTMapper()}); err != nil {
					t.Fatal(err)
				}
			}
			kube.Client = interceptor.NewClient(direct, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, with ...client.PatchOption) error {
				if left > 0 {
					left--
					other := fmt.Appendf(nil, `{"metadata":{"annotations":{"else":"%d"}}}`, left)
					if err := c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", other)); err != nil {
						return err
					}
				}
				return c.Patch(ctx, o, patch, with...)
			}})
			got := runWith(t, kube, test.verb, "clustering", "test")
			if got.code != test.code {
				t.Errorf("found exit code %d (%s), want %d", got.code, got.err, test.code)
			}
			c := readCluster(t, kube)
			if stopped := c.Annotations[mocov1beta2.ClusteringStoppedAnnotation] == mysqlswitches.StopValue; stopped != test.stopped {
				t.Errorf("found stopped %t, want %t", stopped, test.stopped)
			}
			if c.Annotations["else"] == "" {
				t.Errorf("expected the other's annotation to stay, found %v", c.Annotations)
			}
		})
	}
}

// testLeftStatus requests a stop while the status still reports an earlier stop, because the controller has not
// observed the start. Such a status counts for the new stop only after it has not changed for a while.
func testLeftStatus(t *testing.T, server *testenv.Environment) {
	t.Parallel()
	kube := createTestCluster(t, server)
	c := readCluster(t, kube)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: mocov1beta2.ClusteringActiveCondition, Status: metav1.ConditionFalse, Reason: mocov1beta2.ClusteringInactiveReason})
	testenv.ExpectNoError(t, kube.SubResource("status").Update(t.Context(), c))
	if got := runWith(t, kube, "stop", "clustering", "test", "--wait", "--timeout", "500ms"); got.code != exit.TimedOut {
		t.Errorf("found exit code %d at once, want %d", got.code, exit.TimedOut)
	}
	if got := runWith(t, kube, "start", "clustering", "test"); got.code != exit.Done {
		t.Errorf("found exit code %d, want a start", got.code)
	}
	if got := runWith(t, kube, "stop", "clustering", "test", "--wait"); got.code != exit.Done {
		t.Errorf("found exit code %d (%s) although it stayed, want %d", got.code, got.err, exit.Done)
	}
}

type runResult struct {
	code     exit.Code
	out, err string
}

func runWith(t *testing.T, kube *kubeClient, args ...string) runResult {
	t.Helper()
	var out, stderr bytes.Buffer
	a := &commands{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &stderr}, clock: clock.RealClock{}}
	root := a.newRootCommand()
	a.connect = func() (*kubeClient, error) { return kube, nil }
	root.SetArgs(args)
	root.SetOut(io.Discard)
	err := root.ExecuteContext(t.Context())
	return runResult{exit.CodeOf(err), out.String(), fmt.Sprint(err)}
}

func createTestCluster(t *testing.T, server *testenv.Environment) *kubeClient {
	t.Helper()
	kube, err := newKubeClient(server.Config, server.CreateNamespace(t))
	testenv.ExpectNoError(t, err)
	archive, err := txtar.ParseFile(filepath.Join("testdata", "words.txtar"))
	testenv.ExpectNoError(t, err)
	var c mocov1beta2.MySQLCluster
	for _, file := range archive.Files {
		if file.Name != "test.yaml" {
			continue
		}
		testenv.ExpectNoError(t, yaml.Unmarshal(file.Data, &c))
	}
	c.Namespace = kube.namespace
	testenv.ExpectNoError(t, kube.Create(t.Context(), &c))
	return kube
}

func readCluster(t *testing.T, kube *kubeClient) *mocov1beta2.MySQLCluster {
	t.Helper()
	c, err := kube.getCluster(t.Context(), "test")
	testenv.ExpectNoError(t, err)
	return c
}
