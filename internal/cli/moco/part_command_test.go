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
	"github.com/torpor-dev/torpor/internal/testenv"
)

// testConflicts lets somebody write between what the plugin reads and what it writes.
func testConflicts(t *testing.T, server *testenv.Environment) {
	t.Parallel()
	for name, test := range map[string]struct {
		verb      string
		conflicts int
		code      exit.Code
		stopped   bool
	}{
		"a stop comes whoever writes beside it":             {verb: "stop", conflicts: 1000, stopped: true},
		"a start is judged anew three times":                {verb: "start", conflicts: 3},
		"a start that is never judged in peace is given up": {verb: "start", conflicts: 1000, code: exit.Failed, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := createTestCluster(t, server)
			if test.verb == "start" {
				if got := runWith(t, h, "stop", "clustering", "test"); got.code != exit.Done {
					t.Fatalf("found exit code %d (%s), want a stop", got.code, got.err)
				}
			}
			left := test.conflicts
			direct, ok := h.Client.(client.WithWatch)
			if !ok {
				var err error
				if direct, err = client.NewWithWatch(h.config, client.Options{Scheme: h.Scheme(), Mapper: h.RESTMapper()}); err != nil {
					t.Fatal(err)
				}
			}
			h.Client = interceptor.NewClient(direct, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, with ...client.PatchOption) error {
				if left > 0 {
					left--
					other := fmt.Appendf(nil, `{"metadata":{"annotations":{"else":"%d"}}}`, left)
					if err := c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", other)); err != nil {
						return err
					}
				}
				return c.Patch(ctx, o, patch, with...)
			}})
			got := runWith(t, h, test.verb, "clustering", "test")
			if got.code != test.code {
				t.Errorf("found exit code %d (%s), want %d", got.code, got.err, test.code)
			}
			c := readCluster(t, h)
			if stopped := c.Annotations[mocov1beta2.ClusteringStoppedAnnotation] == stopValue; stopped != test.stopped {
				t.Errorf("found stopped %t, want %t", stopped, test.stopped)
			}
			if c.Annotations["else"] == "" {
				t.Errorf("expected the other's annotation to stay, found %v", c.Annotations)
			}
		})
	}
}

// testLeftStatus stops again what the status reports as stopped, because the controller saw nothing of the start:
// such a status says nothing of this stop until it has stayed for a while.
func testLeftStatus(t *testing.T, server *testenv.Environment) {
	t.Parallel()
	h := createTestCluster(t, server)
	c := readCluster(t, h)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: mocov1beta2.ClusteringActiveCondition, Status: metav1.ConditionFalse, Reason: mocov1beta2.ClusteringInactiveReason})
	if err := h.SubResource("status").Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := runWith(t, h, "stop", "clustering", "test", "--wait", "--timeout", "500ms"); got.code != exit.TimedOut {
		t.Errorf("found exit code %d at once, want %d", got.code, exit.TimedOut)
	}
	if got := runWith(t, h, "start", "clustering", "test"); got.code != exit.Done {
		t.Errorf("found exit code %d, want a start", got.code)
	}
	if got := runWith(t, h, "stop", "clustering", "test", "--wait"); got.code != exit.Done {
		t.Errorf("found exit code %d (%s) although it stayed, want %d", got.code, got.err, exit.Done)
	}
}

type runResult struct {
	code     exit.Code
	out, err string
}

// runWith runs a command line with a client of the test's.
func runWith(t *testing.T, h *kubeClient, args ...string) runResult {
	t.Helper()
	var out, stderr bytes.Buffer
	a := &commands{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &stderr}, clock: clock.RealClock{}}
	root := a.newRootCommand()
	a.connect = func() (*kubeClient, error) { return h, nil }
	root.SetArgs(args)
	root.SetOut(io.Discard)
	err := root.ExecuteContext(t.Context())
	return runResult{exit.CodeOf(err), out.String(), fmt.Sprint(err)}
}

// createTestCluster is a namespace with the cluster of the script words.
func createTestCluster(t *testing.T, server *testenv.Environment) *kubeClient {
	t.Helper()
	h, err := newKubeClient(server.Config, server.CreateNamespace(t))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := txtar.ParseFile(filepath.Join("testdata", "words.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var c mocov1beta2.MySQLCluster
	for _, file := range archive.Files {
		if file.Name != "test.yaml" {
			continue
		}
		if err := yaml.Unmarshal(file.Data, &c); err != nil {
			t.Fatal(err)
		}
	}
	c.Namespace = h.namespace
	if err := h.Create(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	return h
}

func readCluster(t *testing.T, h *kubeClient) *mocov1beta2.MySQLCluster {
	t.Helper()
	c, err := h.getCluster(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
