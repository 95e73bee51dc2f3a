// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// fakeManager is a manager without an API server, whose internal state is visible to tests.
type fakeManager struct {
	manager.Manager
	elected chan struct{}
	added   []manager.Runnable
	ready   map[string]healthz.Checker
	extra   map[string]http.Handler

	mu     sync.Mutex
	logged []string
}

func newFakeManager() *fakeManager {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	mgr, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, manager.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	utilruntime.Must(err)
	return &fakeManager{Manager: mgr, elected: make(chan struct{}), ready: map[string]healthz.Checker{}}
}

func (o *fakeManager) GetHTTPClient() *http.Client                   { return &http.Client{} }
func (o *fakeManager) GetControllerOptions() config.Controller       { return config.Controller{} }
func (o *fakeManager) Elected() <-chan struct{}                      { return o.elected }
func (o *fakeManager) AddHealthzCheck(string, healthz.Checker) error { return nil }
func (o *fakeManager) Add(r manager.Runnable) error                  { o.added = append(o.added, r); return nil }

func (o *fakeManager) GetLogger() logr.Logger {
	return funcr.New(func(_, args string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.logged = append(o.logged, args)
	}, funcr.Options{})
}

// AddMetricsServerExtraHandler rejects a path that is already in use, as a metrics server does.
func (o *fakeManager) AddMetricsServerExtraHandler(path string, h http.Handler) error {
	if o.extra[path] != nil {
		return errors.New("duplicate path " + path)
	}
	if o.extra == nil {
		o.extra = map[string]http.Handler{}
	}
	o.extra[path] = h
	return nil
}

func (o *fakeManager) AddReadyzCheck(name string, check healthz.Checker) error {
	o.ready[name] = check
	return nil
}

// switchedCondition is a condition that reports the statuses that the test sends.
type switchedCondition struct{ says chan Status }

func (switchedCondition) String() string { return "switched" }

func (s switchedCondition) Observe(ctx context.Context, _ Sources, report func(Status)) error {
	for {
		select {
		case status := <-s.says:
			report(status)
		case <-ctx.Done():
			return nil
		}
	}
}

// signal is a condition that reports the values received from a channel.
func signal(name string, values <-chan bool) Condition {
	return builtinCondition{name: name, observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
		for {
			select {
			case holds := <-values:
				report(Status{State: map[bool]State{true: True, false: False}[holds], Reason: "Signal"})
			case <-ctx.Done():
				return nil
			}
		}
	}}
}

// groupEnv runs one group in a synctest bubble.
type groupEnv struct {
	t     *testing.T
	mgr   *fakeManager
	when  switchedCondition
	group *Group
	stop  context.CancelFunc
	ended chan error
}

func runGroup(t *testing.T, setup SetupFunc, test func(r *groupEnv), opts ...Option) {
	synctest.Test(t, func(t *testing.T) {
		r := &groupEnv{t: t, mgr: newFakeManager(), when: switchedCondition{says: make(chan Status)}, ended: make(chan error, 1)}
		var err error
		r.group, err = Setup(r.mgr, r.when, setup, append(opts, Name(strings.ReplaceAll(t.Name(), "/", "-")))...)
		testenv.Must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.ended <- r.mgr.added[0].Start(ctx) }()
		test(r)
		stop()
		synctest.Wait()
	})
}

// report reports a status, and waits for its immediate effects.
func (r *groupEnv) report(state State, identity string) {
	r.when.says <- Status{State: state, Identity: identity}
	synctest.Wait()
}

func (r *groupEnv) advance(d time.Duration) {
	<-time.After(d) // This is the bubble's clock.
	synctest.Wait()
}

func (r *groupEnv) elect() {
	close(r.mgr.elected)
	synctest.Wait()
}

func (r *groupEnv) expectPhase(p Phase) {
	r.t.Helper()
	if got := r.group.Status(); got.Phase != p {
		r.t.Fatalf("group is %s (%s), want %s", got.Phase, got.Error, p)
	}
}

// obedientSetup adds a runnable that returns when its context is cancelled, and counts starts and ends.
func obedientSetup(starts, ends *atomic.Int32) SetupFunc {
	return func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			starts.Add(1)
			<-ctx.Done()
			ends.Add(1)
			return nil
		}))
	}
}

func TestGroupFollowsItsCondition(t *testing.T) {
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		steps := []struct {
			name     string
			do       func()
			want     Phase
			starts   int32
			ends     int32
			resolved bool
		}{
			{"an unknown condition leaves the group dormant", func() { r.report(Unknown, "") }, Dormant, 0, 0, false},
			{"a true condition waits for leadership", func() { r.report(True, "a") }, Dormant, 0, 0, true},
			{"elected", r.elect, Running, 1, 0, true},
			{"an unknown condition keeps the group running", func() { r.report(Unknown, "") }, Running, 1, 0, true},
			{"a repeated report does not restart the group", func() { r.report(True, "a") }, Running, 1, 0, true},
			{"a new identity restarts the group", func() { r.report(True, "b") }, Running, 2, 1, true},
			{"a false condition stops the group", func() { r.report(False, "") }, Dormant, 2, 2, true},
			{"an unknown condition keeps the group stopped", func() { r.report(Unknown, "") }, Dormant, 2, 2, true},
			{"a true condition restarts the group", func() { r.report(True, "b") }, Running, 3, 2, true},
		}
		for _, s := range steps {
			s.do()
			r.expectPhase(s.want)
			if got, want := [2]int32{starts.Load(), ends.Load()}, [2]int32{s.starts, s.ends}; got != want {
				t.Errorf("%s: starts and ends are %v, want %v", s.name, got, want)
			}
			if err := r.group.Checker(RequireResolved)(nil); (err == nil) != s.resolved {
				t.Errorf("%s: RequireResolved says %v", s.name, err)
			}
		}
	})
	if starts.Load() != ends.Load() {
		t.Errorf("%d starts, %d ends after the manager stopped", starts.Load(), ends.Load())
	}
}

// TestAStopIsNotOvertakenByAStart simulates a loop that decides to start the group just before Stop finds the group
// Dormant and returns.
func TestAStopIsNotOvertakenByAStart(t *testing.T) {
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		r.elect()
		testenv.Must(r.t, r.group.Stop(r.t.Context()))
		synctest.Wait()
		if r.group.loop.applyFact(r.t.Context(), factWanted, nil) {
			r.t.Error("expected a group that is stopped not to start, found that it does")
		}
		r.expectPhase(Dormant)
	})
	if starts.Load() > 0 {
		t.Errorf("expected no start after Stop, found %d", starts.Load())
	}
}

// TestGroupRunsElsewhere uses a condition that reports that another replica runs the group.
func TestGroupRunsElsewhere(t *testing.T) {
	rec := events.NewFakeRecorder(100)
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		r.elect()
		for _, step := range []struct {
			reason  string
			isReady bool
		}{{ElsewhereReason, true}, {ForbiddenReason, false}, {ElsewhereReason, true}} {
			r.when.says <- Status{State: False, Reason: step.reason, Message: "replica b holds the Lease"}
			r.advance(time.Second)
			if err := r.group.Checker(RequireRunning)(nil); (err == nil) != step.isReady || r.group.show().State != step.reason {
				t.Errorf("%s: expected ready %t, found %v and the state %s", step.reason, step.isReady, err, r.group.show().State)
			}
		}
		r.report(True, "a")
		r.expectPhase(Running)
		if err := r.group.Checker(RequireRunning)(nil); err != nil || r.group.show().State != string(Running) {
			t.Errorf("expected a ready group that runs, found %v and the state %s", err, r.group.show().State)
		}
	}, Events(rec, &corev1.ConfigMap{}))
}

func TestGroupRetriesFailures(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]SetupFunc{
		"a setup function that returns an error is called again": func(manager.Manager) error { return boom },
		"a setup function that panics is called again":           func(manager.Manager) error { panic("boom") },
		"a runnable that returns an error is started again": func(mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(context.Context) error { return boom }))
		},
	}
	for name, fail := range cases {
		t.Run(name, func(t *testing.T) {
			var tries, starts, ends atomic.Int32
			setup := func(mgr manager.Manager) error {
				if tries.Add(1) <= 3 {
					return fail(mgr)
				}
				return obedientSetup(&starts, &ends)(mgr)
			}
			runGroup(t, setup, func(r *groupEnv) {
				r.elect()
				r.report(True, "a")
				r.expectPhase(Failed)
				if got := r.group.Status().Error; !strings.Contains(got, "boom") {
					t.Errorf("status says %q, want the cause", got)
				}
				if r.group.Checker(RequireRunning)(nil) == nil || r.group.Checker(RequireResolved)(nil) != nil {
					t.Error("a failed group is not running, but resolved")
				}
				r.advance(1500 * time.Millisecond)
				if tries.Load() != 2 {
					t.Errorf("%d tries after 1.5 s, want 2", tries.Load())
				}
				r.advance(7 * time.Second)
				r.expectPhase(Running)
				if got := r.group.Status().Error; got != "" {
					t.Errorf("a running group still says %q", got)
				}
			})
		})
	}
}

func TestGroupRetriesAtOnceWhenTheConditionChanges(t *testing.T) {
	var tries atomic.Int32
	setup := func(manager.Manager) error { tries.Add(1); return errors.New("boom") }
	runGroup(t, setup, func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
		r.report(True, "b")
		if tries.Load() != 2 {
			t.Errorf("%d tries after another identity, want 2 at once", tries.Load())
		}
		r.report(False, "")
		r.expectPhase(Dormant)
		r.advance(time.Hour)
		if tries.Load() != 2 {
			t.Errorf("%d tries while the condition is false, want none more", tries.Load())
		}
	})
}

func TestGroupNeverRunsTwiceAtOnce(t *testing.T) {
	var living, most atomic.Int32
	var release chan struct{}
	var late []error
	setup := func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			most.Store(max(most.Load(), living.Add(1)))
			<-ctx.Done()
			<-release // The runnable ignores its context.
			_, mapping := mgr.GetRESTMapper().RESTMapping(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "v1")
			late = []error{mapping, mgr.GetClient().Get(context.Background(), client.ObjectKey{Name: "x"}, &corev1.ConfigMap{})}
			living.Add(-1)
			return nil
		}))
	}
	runGroup(t, setup, func(r *groupEnv) {
		release = make(chan struct{}) // The channel must be created in the bubble.
		r.elect()
		r.report(True, "a")
		r.report(False, "")
		r.expectPhase(Draining)
		r.advance(31 * time.Second)
		r.expectPhase(Stuck)
		r.report(True, "b")
		r.advance(time.Hour)
		r.expectPhase(Stuck)
		release <- struct{}{}
		synctest.Wait()
		r.expectPhase(Running)
		for _, err := range late {
			if !errors.Is(err, ErrScopeClosed) {
				t.Errorf("a look or a read after the stop says %v, want ErrScopeClosed", err)
			}
		}
		close(release)
	})
	if most.Load() != 1 || living.Load() != 0 {
		t.Errorf("%d lived at once, %d at the end, want 1 and 0", most.Load(), living.Load())
	}
}

func TestConditionChangesDuringSetupAndStop(t *testing.T) {
	var starts, ends atomic.Int32
	var door chan struct{}
	cases := map[string]struct {
		slowSetup, slowEnd bool
		do                 func(r *groupEnv)
		phase              Phase // phase while door blocks setup or the runnable
		after              Phase // phase after door is closed, which unblocks setup and the runnable
		starts             int32 // number of starts of the runnable
	}{
		"a start during Draining waits until the group has drained": {
			false, true, func(r *groupEnv) { r.report(True, "a"); r.report(False, ""); r.report(True, "b") }, Draining, Running, 2,
		},
		"a start and a stop during Draining cancel out": {
			false, true, func(r *groupEnv) { r.report(True, "a"); r.report(False, ""); r.report(True, "b"); r.report(False, "") }, Draining, Dormant, 1,
		},
		"a stop during Starting prevents the start of runnables": {
			true, false, func(r *groupEnv) { r.report(True, "a"); r.report(False, "") }, Draining, Dormant, 0,
		},
		"another identity during Starting restarts the group": {
			true, false, func(r *groupEnv) { r.report(True, "a"); r.report(True, "b") }, Draining, Running, 1,
		},
		"a loss of leadership during Starting prevents the start of runnables": {
			true, false, func(r *groupEnv) { r.report(True, "a"); r.stop(); synctest.Wait() }, Draining, Dormant, 0,
		},
		"a group does not restart after a loss of leadership during Running": {
			false, true, func(r *groupEnv) { r.report(True, "a"); r.stop(); synctest.Wait() }, Draining, Dormant, 1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			starts.Store(0)
			ends.Store(0)
			runGroup(t, func(mgr manager.Manager) error {
				if c.slowSetup {
					<-door
				}
				return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
					starts.Add(1)
					defer ends.Add(1)
					<-ctx.Done()
					if c.slowEnd {
						<-door
					}
					return nil
				}))
			}, func(r *groupEnv) {
				door = make(chan struct{}) // The channel must be created in the bubble.
				r.elect()
				c.do(r)
				r.expectPhase(c.phase)
				close(door)
				synctest.Wait()
				r.expectPhase(c.after)
				if starts.Load() != c.starts {
					t.Errorf("%d runnables were started, want %d", starts.Load(), c.starts)
				}
			})
			if starts.Load() != ends.Load() {
				t.Errorf("%d starts, %d ends", starts.Load(), ends.Load())
			}
		})
	}
}

func TestGroupEndsWithItsManagerInEveryPhase(t *testing.T) {
	var starts, ends atomic.Int32
	slow := func(d time.Duration) SetupFunc {
		return func(mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(d)
				return nil
			}))
		}
	}
	cases := map[Phase]struct {
		setup SetupFunc
		reach func(r *groupEnv)
		fails bool
	}{
		Dormant:  {obedientSetup(&starts, &ends), func(r *groupEnv) { r.report(False, "") }, false},
		Starting: {func(manager.Manager) error { <-time.After(time.Second); return nil }, func(r *groupEnv) { r.report(True, "a") }, false},
		Running:  {obedientSetup(&starts, &ends), func(r *groupEnv) { r.report(True, "a") }, false},
		Draining: {slow(20 * time.Second), func(r *groupEnv) { r.report(True, "a"); r.report(False, "") }, false},
		Stuck:    {slow(time.Hour), func(r *groupEnv) { r.report(True, "a"); r.report(False, ""); r.advance(time.Minute) }, true},
		Failed:   {func(manager.Manager) error { return errors.New("boom") }, func(r *groupEnv) { r.report(True, "a") }, false},
	}
	for phase, c := range cases {
		t.Run(string(phase), func(t *testing.T) {
			runGroup(t, c.setup, func(r *groupEnv) {
				r.elect()
				c.reach(r)
				r.expectPhase(phase)
				r.stop()
				r.advance(30 * time.Second)
				select {
				case err := <-r.ended:
					if (err != nil) != c.fails {
						t.Errorf("the group ended with %v", err)
					}
				default:
					t.Errorf("the group is %s half a minute after the manager stopped", r.group.Status().Phase)
				}
				r.advance(time.Hour)
			})
		})
	}
}

func TestScopedChecksComeAndGo(t *testing.T) {
	bad := func(*http.Request) error { return errors.New("bad") }
	setup := func(mgr manager.Manager) error { return mgr.AddReadyzCheck("mine", bad) }
	runGroup(t, setup, func(r *groupEnv) {
		r.elect()
		check := r.mgr.ready["conditional"]
		if err := check(nil); err != nil {
			t.Errorf("dormant: %v", err)
		}
		r.report(True, "a")
		if err := check(nil); err == nil || !strings.Contains(err.Error(), "mine: bad") {
			t.Errorf("running: %v, want the scope's check", err)
		}
		r.report(False, "")
		if err := check(nil); err != nil {
			t.Errorf("dormant again: %v", err)
		}
	})
}

func TestSetupRefusesBadUse(t *testing.T) {
	mgr := newFakeManager()
	fine := func(manager.Manager) error { return nil }
	cases := map[string]struct {
		when  Condition
		setup SetupFunc
		opts  []Option
		want  string
	}{
		"a nil condition: refused":                                    {nil, fine, nil, "found nil"},
		"a nil setup function: refused":                               {switchedCondition{}, nil, nil, "found nil"},
		"Served without a kind: refused":                              {Served(), fine, nil, "condition Served needs a kind"},
		"ServedObject with a kind that is not in the scheme: refused": {ServedObject(&appsv1.Deployment{}), fine, nil, "AddToScheme"},
		"a drain timeout of 0: refused":                               {switchedCondition{}, fine, []Option{DrainTimeout(0)}, "DrainTimeout longer than 0"},
		"an empty back-off: refused":                                  {switchedCondition{}, fine, []Option{StartBackoff(wait.Backoff{})}, "StartBackoff"},
		"a restart limit of 0 starts: refused":                        {switchedCondition{}, fine, []Option{RestartLimit(0, wait.Backoff{Duration: 1})}, "at least 1 start"},
		"a restart limit without a pause: refused":                    {switchedCondition{}, fine, []Option{RestartLimit(1, wait.Backoff{})}, "longer than 0"},
		"events without a recorder: refused":                          {switchedCondition{}, fine, []Option{Events(nil, &corev1.Pod{})}, "expected a recorder and an object"},
		"events without an object: refused":                           {switchedCondition{}, fine, []Option{Events(events.NewFakeRecorder(0), nil)}, "expected a recorder and an object"},
		"Poll without a pause: refused":                               {switchedCondition{}, fine, []Option{Poll(0)}, "longer than 0 in Poll"},
		"WatchNamed without a name: refused":                          {switchedCondition{}, fine, []Option{WatchNamed()}, "found none"},
		"WatchNamed with a CRD name that lacks the group: refused":    {switchedCondition{}, fine, []Option{WatchNamed("widgets.example.com", "widgets")}, `found "widgets"`},
		"WatchNamed together with Poll: refused":                      {switchedCondition{}, fine, []Option{WatchNamed("widgets.example.com"), Poll(time.Second)}, "drop WatchNamed"},
		"Optional without a kind: refused":                            {switchedCondition{}, fine, []Option{Optional()}, "found none"},
		"Optional with a kind that is not in the scheme: refused":     {switchedCondition{}, fine, []Option{Optional(&appsv1.Deployment{})}, "AddToScheme"},
		"two invalid options: the error includes the first":           {switchedCondition{}, fine, []Option{Poll(0), DrainTimeout(0)}, "Poll"},
		"two invalid options: the error includes the second":          {switchedCondition{}, fine, []Option{Poll(0), DrainTimeout(0)}, "DrainTimeout"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Setup(mgr, c.when, c.setup, c.opts...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if diff := cmp.Diff(0, len(mgr.added)); diff != "" {
		t.Errorf("runnables added by bad use (-want +got):\n%s", diff)
	}
}
