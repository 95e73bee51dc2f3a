// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// oneApp is an API server with one app, and with Slumbers.
type oneApp struct {
	client.WithWatch
	slumbers []torporv1alpha1.Slumber
	apps     *watch.FakeWatcher

	mu sync.Mutex
	// failures are the errors of the next list requests for apps; nil means success.
	failures []error
}

func newOneApp(failures ...error) *oneApp {
	nights := torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{
		Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}},
		Waves:   []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "CFApp"}}}},
	}}
	return &oneApp{slumbers: []torporv1alpha1.Slumber{nights}, apps: watch.NewFakeWithChanSize(3, false), failures: failures}
}

// Get implements client.Reader. No manager holds the Lease.
func (*oneApp) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return k8serrors.NewNotFound(schema.GroupResource{}, "x")
}

// List implements client.Reader.
func (o *oneApp) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch found := list.(type) {
	case *torporv1alpha1.SlumberList:
		found.Items = o.slumbers
		return nil
	case *korifiv1alpha1.CFAppList:
		found.ResourceVersion = "1"
		found.Items = []korifiv1alpha1.CFApp{*newApp(korifiv1alpha1.StartedState, korifiv1alpha1.StartingReason)}
		return o.nextFailure()
	default:
		notServed := k8serrors.NewNotFound(schema.GroupResource{}, "x")
		notServed.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}
		return notServed
	}
}

func (o *oneApp) nextFailure() (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failures) > 0 {
		err, o.failures = o.failures[0], o.failures[1:]
	}
	return err
}

// Watch implements client.WithWatch. It sends the existing objects, and then a bookmark.
func (o *oneApp) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	app := newApp(korifiv1alpha1.StartedState, korifiv1alpha1.StartingReason)
	app.ResourceVersion = "1"
	o.apps.Add(app)
	mark := app.DeepCopy()
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	o.apps.Action(watch.Bookmark, mark)
	return o.apps, nil
}

// startWatch runs status --watch at noon. end cancels the command and returns its error.
func startWatch(t *testing.T, api *oneApp) (out *testenv.LogBuffer, end func() error) {
	t.Helper()
	out = &testenv.LogBuffer{}
	a := &commands{Streams: Streams{Out: out, Err: io.Discard}, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))}
	root := a.newRootCommand()
	a.connect = func() (*kubeClient, error) { return &kubeClient{WithWatch: api, namespace: "ns"}, nil }
	root.SetArgs([]string{"status", "--watch"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	return out, func() error { cancel(); return <-ended }
}

func expectLastLine(t *testing.T, what string, out *testenv.LogBuffer, want string) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		found := strings.Join(strings.Fields(lines[len(lines)-1]), " ")
		return testenv.ErrorIf(found != want, "expected %q, found %q", want, found)
	})
}

// TestWatchShowsTheNextTransition uses a Slumber that selects an app. A row is printed only when it changes, with the
// next scheduled transition.
func TestWatchShowsTheNextTransition(t *testing.T) {
	t.Parallel()
	api := newOneApp()
	out, end := startWatch(t, api)
	const next = " is stopped at 2026-11-24 20:00 UTC by Slumber nights"
	expectLastLine(t, "the table", out, "cfapp/x app starting - - - -"+next)
	api.apps.Modify(newApp(korifiv1alpha1.StartedState, korifiv1alpha1.RunningReason))
	expectLastLine(t, "an app that runs", out, "cfapp/x app running - - - -"+next)
	testenv.ExpectNoError(t, end())
	if lines := strings.Count(out.String(), "\n"); lines != 3 {
		t.Errorf("expected the headings and two rows, found %s", out)
	}
}

// TestAWatchOutlivesAListThatFails lets a list request fail once between the table and the watch.
func TestAWatchOutlivesAListThatFails(t *testing.T) {
	t.Parallel()
	api := newOneApp(nil, k8serrors.NewInternalError(errors.New("too busy")))
	out, end := startWatch(t, api)
	expectLastLine(t, "the table", out, "cfapp/x app starting - - - - is stopped at 2026-11-24 20:00 UTC by Slumber nights")
	api.apps.Modify(newApp(korifiv1alpha1.StoppedState, korifiv1alpha1.StoppedReason))
	expectLastLine(t, "an app that is stopped", out, "cfapp/x app stopped - - - - kubectl torpor start -n ns cfapp/x")
	testenv.ExpectNoError(t, end())
}

// TestWatchWithoutAKindIsAnError removes the only kind between the table and the watch.
func TestWatchWithoutAKindIsAnError(t *testing.T) {
	t.Parallel()
	api := newOneApp()
	gone := api.List(t.Context(), &korifiv1alpha1.CFRouteList{})
	s := &statusCommand{commands: &commands{Streams: Streams{Out: io.Discard, Err: io.Discard}, clock: clocktesting.NewFakePassiveClock(time.Now())}}
	api.failures = []error{gone}
	err := s.follow(t.Context(), &kubeClient{WithWatch: api, namespace: "ns"}, nil, labels.Everything(), nil)
	if err == nil || !strings.Contains(err.Error(), "expected a kind that can be followed") || strings.Contains(err.Error(), "%!") {
		t.Errorf("expected an error without a kind to follow, found %v", err)
	}
}
