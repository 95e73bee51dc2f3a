// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

const (
	soakKinds      = 20
	soakObjects    = 5
	restartEvery   = 20 * time.Second
	restartTimeout = 5 * time.Minute // limit for operations that a restart of the API server may delay
	nudgeAfter     = 10 * time.Second
)

// soakRun creates, deletes and changes CRDs at random while pairs of groups watch them and the API server restarts.
type soakRun struct {
	server  *envtest.Environment
	admin   adminClient
	objects dynamic.Interface
	counts  struct{ installs, reversions, objects, deletions, restarts, nudges atomic.Int64 }
}

// runSoak returns an error if an event is lost or two workers reconcile one object at the same time.
func runSoak(ctx context.Context, span time.Duration, seed uint64) (err error) {
	certs, err := os.MkdirTemp("", "soak")
	if err != nil {
		return fmt.Errorf("create a folder for certificates: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(certs)) }()
	server, err := testenv.NewEnvironment(ctx)
	if err != nil {
		return err
	}
	s := &soakRun{server: server}
	apiServer := s.server.ControlPlane.GetAPIServer()
	apiServer.CertDir = certs                             // The folder is kept across restarts.
	apiServer.Configure().Append("request-timeout", "5s") // Limits how long a shutdown waits for watches.
	cfg, err := s.server.Start()
	if err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	defer func() { err = errors.Join(err, s.server.Stop()) }()
	return catchError(func() {
		s.admin = newAdminClient(cfg)
		unlimited := rest.CopyConfig(cfg)
		unlimited.QPS = -1
		s.objects, err = dynamic.NewForConfig(unlimited)
		check(err, "make the client of objects")
		e := &trialEnv{cfg: cfg, counter: &requestCounter{}}
		e.log = e.counter.newLogger()
		ctrllog.SetLogger(e.log)
		base := goruntime.NumGoroutine()
		mgr := e.newManager()
		pairs := make([]*soakPair, soakKinds)
		for i := range pairs {
			pairs[i] = newSoakPair(mgr, benchKind(i))
		}
		withManager(ctx, mgr, func(ctx context.Context) { s.breakThings(ctx, pairs, span, seed) })
		mgr.GetHTTPClient().CloseIdleConnections()
		check(waitForGoroutines(ctx, base), "after the manager has ended")
		fmt.Fprintf(os.Stdout, "soak of %s, seed %d: %d installs, %d versions off and on, %d objects, %d last deletions, %d restarts of the API server, %d CRDs that the API server established only after another update; nothing was lost\n", span, seed,
			s.counts.installs.Load(), s.counts.reversions.Load(), s.counts.objects.Load(), s.counts.deletions.Load(), s.counts.restarts.Load(), s.counts.nudges.Load())
	})
}

func waitForGoroutines(ctx context.Context, limit int) error {
	limit += 10 // The admin client's connections have goroutines, too.
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) { return goruntime.NumGoroutine() <= limit, nil })
	if err != nil {
		return fmt.Errorf("expected at most %d goroutines, found %d: %w", limit, goruntime.NumGoroutine(), err)
	}
	return nil
}

func (s *soakRun) breakThings(ctx context.Context, pairs []*soakPair, span time.Duration, seed uint64) {
	end := time.Now().Add(span)
	work, ctx := errgroup.WithContext(ctx)
	for i, p := range pairs {
		random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // A soak is to be repeatable.
		work.Go(func() error {
			return catchError(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					s.liveOnce(ctx, p, random)
				}
			})
		})
	}
	work.Go(func() error {
		return catchError(func() {
			for time.Now().Add(restartEvery).Before(end) && ctx.Err() == nil {
				pause(ctx, restartEvery)
				check(s.server.ControlPlane.APIServer.Stop(), "stop the API server")
				check(s.server.ControlPlane.APIServer.Start(), "start the API server again")
				s.counts.restarts.Add(1)
			}
		})
	})
	check(work.Wait(), "soak")
}

// liveOnce installs a CRD and creates objects. In a third of all cases, it then stops serving the CRD's version for a
// while. Finally it deletes the CRD with its objects.
func (s *soakRun) liveOnce(ctx context.Context, p *soakPair, random *rand.Rand) {
	crd := newCRD(p.kind)
	isClustered := random.IntN(3) == 0
	if isClustered {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	s.retry(ctx, "install a CRD", func() error { return ignoreExists(s.admin.client.Create(ctx, crd.DeepCopy())) })
	s.awaitEstablished(ctx, crd)
	s.counts.installs.Add(1)
	prefix := fmt.Sprintf("life-%d-", s.counts.installs.Load())
	var names []string
	addObject := func() {
		names = append(names, fmt.Sprint(prefix, len(names)))
		obj := newObject(p.kind, names[len(names)-1])
		// A controller-runtime client would cache the first scope of the kind.
		objects := s.objects.Resource(p.kind.GroupVersion().WithResource(crd.Spec.Names.Plural))
		target := objects.Namespace(obj.GetNamespace())
		if isClustered {
			obj.SetNamespace("")
			target = objects
		}
		s.retry(ctx, "create an object", func() error {
			_, err := target.Create(ctx, obj, metav1.CreateOptions{})
			return ignoreExists(err)
		})
		s.counts.objects.Add(1)
	}
	for range soakObjects {
		addObject()
	}
	p.expectSeen(ctx, names)
	if random.IntN(3) == 0 {
		s.setServed(ctx, crd, false)
		pause(ctx, time.Duration(random.IntN(3000))*time.Millisecond)
		s.setServed(ctx, crd, true)
		s.counts.reversions.Add(1)
		addObject() // A group that has reconciled this object has also listed the other objects.
		p.expectSeen(ctx, names)
	}
	p.forgetGone()
	s.retry(ctx, "delete a CRD", func() error { return client.IgnoreNotFound(s.admin.client.Delete(ctx, crd.DeepCopy())) })
	s.retry(ctx, "wait until a CRD is gone", func() error {
		err := s.admin.client.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
		if err == nil {
			return errors.New("the CRD still exists")
		}
		return client.IgnoreNotFound(err)
	})
	waitForPhase(ctx, conditional.Dormant, p.group, p.neighbour)
	if missing := p.findMissing(p.gone, names); missing != "" {
		check(errors.New(missing), "expected the last deletions of "+p.kind.Kind+" to be reconciled before the group stopped, found a deletion that was not")
	}
	s.counts.deletions.Add(int64(len(names)))
	check(p.brokenPromise(), "check the workers")
}

// awaitEstablished waits until the API server serves a CRD. A CRD whose names were accepted right before a restart
// stays in that state until it changes or its informer resyncs after five minutes. In this state the server responds to
// requests for the kind, but discovery does not list it, so no client can detect it. See updateCustomResourceDefinition
// in k8s.io/apiextensions-apiserver.
func (s *soakRun) awaitEstablished(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	var since time.Time
	s.retry(ctx, "wait until a CRD is established", func() error {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.admin.client.Get(ctx, client.ObjectKeyFromObject(crd), &now); err != nil {
			return err
		}
		if testenv.IsEstablished(&now) {
			return nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > nudgeAfter {
			s.counts.nudges.Add(1)
			since = time.Now()
			metav1.SetMetaDataAnnotation(&now.ObjectMeta, "nudged", since.String())
			if err := s.admin.client.Update(ctx, &now); err != nil {
				return err
			}
		}
		return fmt.Errorf("found the conditions %+v", now.Status.Conditions)
	})
}

func ignoreExists(err error) error {
	if k8serrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// retry repeats operations that fail while the API server restarts, or while a kind is new.
func (s *soakRun) retry(ctx context.Context, what string, do func() error) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, restartTimeout, true, func(context.Context) (bool, error) {
		last = do()
		return last == nil, nil
	})
	check(errors.Join(err, last), what)
}

func (s *soakRun) setServed(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, served bool) {
	s.retry(ctx, "change a CRD", func() error {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.admin.client.Get(ctx, client.ObjectKeyFromObject(crd), &now); err != nil {
			return err
		}
		now.Spec.Versions[0].Served = served
		return s.admin.client.Update(ctx, &now)
	})
}

// soakPair holds two groups that watch the same kind and share its informer.
type soakPair struct {
	kind             schema.GroupVersionKind
	group, neighbour *conditional.Group

	mu         sync.Mutex
	busy       map[string]bool // key is <role>/<object>, as in seen and gone
	seen, gone map[string]bool
	broken     error
}

func newSoakPair(mgr manager.Manager, kind schema.GroupVersionKind) *soakPair {
	p := &soakPair{kind: kind, busy: map[string]bool{}, seen: map[string]bool{}, gone: map[string]bool{}}
	p.group, p.neighbour = p.setUp(mgr, "soak"), p.setUp(mgr, "neighbour")
	return p
}

func (p *soakPair) setUp(mgr manager.Manager, role string) *conditional.Group {
	name := role + "-" + strings.ToLower(p.kind.Kind)
	return setUpGroup(mgr, name, conditional.Served(p.kind), func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named(name).For(newObject(p.kind, "")).WithOptions(controller.Options{MaxConcurrentReconciles: 2}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				// The cache is read, because a client reads unstructured objects from the API server, which may be
				// down. Failures shortly before a stop are not retried.
				return reconcile.Result{}, p.reconcile(ctx, mgr.GetCache(), role, req)
			}))
	})
}

func (p *soakPair) reconcile(ctx context.Context, c client.Reader, role string, req reconcile.Request) error {
	key := role + "/" + req.Name
	p.mu.Lock()
	if p.busy[key] {
		p.broken = fmt.Errorf("expected one worker for %s of %s, found two", key, p.kind.Kind)
	}
	p.busy[key] = true
	p.mu.Unlock()
	err := c.Get(ctx, req.NamespacedName, newObject(p.kind, ""))
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, key)
	switch {
	case err == nil:
		p.seen[key] = true
	case k8serrors.IsNotFound(err):
		p.gone[key] = true
	}
	return client.IgnoreNotFound(err)
}

// forgetGone clears the record of deletions. The record may contain existing objects, which were reported as deleted
// while their version was not served.
func (p *soakPair) forgetGone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.gone)
}

func (p *soakPair) brokenPromise() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// findMissing returns the role and name of an object that is not in a map, or an empty string if there is none.
func (p *soakPair) findMissing(in map[string]bool, names []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		for _, role := range []string{"soak/", "neighbour/"} {
			if !in[role+name] {
				return role + name
			}
		}
	}
	return ""
}

// expectSeen waits until both the group and its neighbour have reconciled the objects.
func (p *soakPair) expectSeen(ctx context.Context, names []string) {
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, restartTimeout, true, func(context.Context) (bool, error) {
		missing = p.findMissing(p.seen, names)
		return missing == "", nil
	})
	check(err, fmt.Sprintf("wait until %s of %s is reconciled; the groups are %+v and %+v", missing, p.kind.Kind, p.group.Status(), p.neighbour.Status()))
}
