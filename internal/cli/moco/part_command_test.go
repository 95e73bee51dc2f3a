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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// testConflicts lets another writer change the cluster between the plugin's read and write.
func testConflicts(t *testing.T, server *testenv.Environment) {
	t.Parallel()
	for name, test := range map[string]struct {
		verb      string
		conflicts int
		code      exit.Code
		stopped   bool
	}{
		"a stop is written in spite of other writers":            {verb: "stop", conflicts: 1000, stopped: true},
		"a start is checked again after each of three conflicts": {verb: "start", conflicts: 3},
		"a start is given up after too many conflicts":           {verb: "start", conflicts: 1000, code: exit.Failed, stopped: true},
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
			if stopped := c.Annotations[mocov1beta2.ClusteringStoppedAnnotation] == stopValue; stopped != test.stopped {
				t.Errorf("found stopped %t, want %t", stopped, test.stopped)
			}
			if c.Annotations["else"] == "" {
				t.Errorf("expected the other's annotation to stay, found %v", c.Annotations)
			}
		})
	}
}

// testLeftStatus repeats a stop that the status still reports because the controller has not observed the start.
// Such a status proves this stop only after it has stayed for a while.
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

func TestChangeAnnotations(t *testing.T) {
	t.Parallel()
	const (
		stopped, other, why, end = "moco.cybozu.com/clustering-stopped", "moco.cybozu.com/reconciliation-stopped", "torpor.dev/reason", "torpor.dev/until"
		ownWhy, ownEnd, otherWhy = "torpor.dev/clustering-reason", "torpor.dev/clustering-until", "torpor.dev/reconciliation-reason"
		force, look              = "torpor.dev/force-start", "torpor.dev/look-requested"
		soon, past               = "2026-01-01T01:00:00Z", "2025-12-31T23:00:00Z"
	)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type annotations = map[string]string
	stop, start := partRequest{part: clusteringPart(), stop: true}, partRequest{part: clusteringPart()}
	because, noReason := stop, stop
	because.reason, because.until = new("b"), new(soon)
	noReason.reason = new("")
	for name, test := range map[string]struct {
		wish partRequest
		has  annotations
		want annotationChange
	}{
		"a first stop sets the annotation":                                {stop, nil, annotationChange{annotations: annotations{stopped: "true"}}},
		"a repeated stop changes nothing":                                 {stop, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", why: "a"}, alreadyDone: true}},
		"a stop with a reason sets both":                                  {because, annotations{"x": "y"}, annotationChange{annotations: annotations{stopped: "true", ownWhy: "b", ownEnd: soon, "x": "y"}}},
		"a different reason replaces the old one":                         {because, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", ownWhy: "b", ownEnd: soon}, alreadyDone: true}},
		"a different reason next to another stop replaces the shared one": {because, annotations{stopped: "true", other: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", other: "true", why: "a", ownWhy: "b", ownEnd: soon}, alreadyDone: true}},
		"an empty reason removes the annotation":                          {noReason, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true"}, alreadyDone: true}},
		"leftovers of an earlier stop are removed":                        {stop, annotations{why: "a", end: soon}, annotationChange{annotations: annotations{stopped: "true"}}},
		"stop after an expired one":                                       {stop, annotations{stopped: "true", end: past}, annotationChange{annotations: annotations{stopped: "true"}, removedValue: "true"}},
		"leftovers of the part's own stop are removed":                    {stop, annotations{other: "true", ownWhy: "a", ownEnd: past}, annotationChange{annotations: annotations{stopped: "true", other: "true"}}},
		"repeated stop keeps its own end":                                 {stop, annotations{stopped: "true", ownEnd: soon, end: past}, annotationChange{annotations: annotations{stopped: "true", ownEnd: soon, end: past}, alreadyDone: true}},
		"stop after the part's own end":                                   {stop, annotations{stopped: "true", ownEnd: past, end: soon}, annotationChange{annotations: annotations{stopped: "true"}, removedValue: "true"}},
		"the other part keeps its reason":                                 {stop, annotations{other: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", other: "true", why: "a"}}},
		"value that requests no stop":                                     {stop, annotations{stopped: "yes"}, annotationChange{annotations: annotations{stopped: "true"}, removedValue: "yes"}},
		"a time that cannot be parsed":                                    {stop, annotations{stopped: "true", end: "soon"}, annotationChange{annotations: annotations{stopped: "true", end: "soon"}, alreadyDone: true}},
		"a start removes the stop, its reason and its end":                {start, annotations{stopped: "true", why: "a", end: soon, "x": "y"}, annotationChange{annotations: annotations{"x": "y"}}},
		"a start of a running part changes nothing":                       {start, annotations{why: "a"}, annotationChange{annotations: annotations{why: "a"}, alreadyDone: true}},
		"a start next to another stop keeps the shared reason":            {start, annotations{stopped: "true", other: "true", why: "a"}, annotationChange{annotations: annotations{other: "true", why: "a"}}},
		"start removes only its own annotations":                          {start, annotations{stopped: "true", other: "true", ownWhy: "a", ownEnd: soon, otherWhy: "b"}, annotationChange{annotations: annotations{other: "true", otherWhy: "b"}}},
		"start removes a value that stops nothing":                        {start, annotations{stopped: "True"}, annotationChange{annotations: annotations{}, alreadyDone: true, removedValue: "True"}},
		"a start after the end of a stop":                                 {start, annotations{stopped: "true", end: past}, annotationChange{annotations: annotations{}}},
		"start removes the request for a check":                           {start, annotations{stopped: "true", look: "now"}, annotationChange{annotations: annotations{}}},
		"a stop forgets an earlier force":                                 {stop, annotations{force: "true"}, annotationChange{annotations: annotations{stopped: "true"}}},
		"start of a running part next to a stop":                          {start, annotations{other: "true", end: soon}, annotationChange{annotations: annotations{other: "true", end: soon}, alreadyDone: true}},
		"start next to a value that stops nothing":                        {start, annotations{stopped: "true", other: "no", why: "a"}, annotationChange{annotations: annotations{other: "no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.wish.changeAnnotations(test.has, now)
			testenv.ExpectEqual(t, "annotations", test.want, got, cmp.AllowUnexported(annotationChange{}))
		})
	}
}
