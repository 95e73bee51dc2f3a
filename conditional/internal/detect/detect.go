// SPDX-License-Identifier: Apache-2.0

// Package detect tells whether an API server serves given kinds, and when that changes. A metadata-only watch of
// the CRDs wakes it, discovery decides, a watch probe makes sure that informers will sync; idle, it makes no request.
package detect

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Interest is what a subscriber wants to know, and how the detector may find it out.
type Interest struct {
	Kinds []schema.GroupVersionKind
	// Poll, when it is not 0, asks discovery at this interval instead of watching.
	Poll time.Duration
	// CRDs, when there are some, are the names of the only CRDs that may be watched.
	CRDs []string
	// APIServices also watches APIServices, for kinds of aggregated API servers.
	APIServices bool
}

// Detector tells many subscribers about the kinds of one API server.
type Detector struct {
	cfg *rest.Config
	hc  *http.Client
	log logr.Logger

	mu    sync.Mutex
	known map[schema.GroupVersionKind]Verdict
}

// New returns a detector that has not made a request yet.
func New(cfg *rest.Config, hc *http.Client, log logr.Logger) (*Detector, error) {
	return &Detector{cfg: cfg, hc: hc, log: log, known: map[schema.GroupVersionKind]Verdict{}}, nil
}

// Subscribe reports the verdicts on the kinds, in their order, at once and on every change, until cancel is called.
// Reports come one after the other; report must not block. Cancel returns when no report is under way any more.
func (d *Detector) Subscribe(i Interest, report func([]Verdict)) (cancel func(), err error) {
	w, err := newWatcher(d.cfg, d.hc, d.log)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	noted := func(verdicts []Verdict) {
		d.note(i.Kinds, verdicts)
		report(verdicts)
	}
	running.Go(func() { _ = w.Run(ctx, i.Kinds, noted) })
	return func() { stop(); running.Wait() }, nil
}

func (d *Detector) note(kinds []schema.GroupVersionKind, verdicts []Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, v := range verdicts {
		if v.Reason != "Detecting" {
			d.known[kinds[i]] = v
		}
	}
}

// Known returns the last verdict on a kind, if somebody subscribed to it.
func (d *Detector) Known(gvk schema.GroupVersionKind) (Verdict, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.known[gvk]
	return v, ok
}

// watcher watches one API server.
type watcher struct {
	log     logr.Logger
	crds    toolscache.SharedIndexInformer
	prober  *prober
	signals chan signal
}

func newWatcher(cfg *rest.Config, hc *http.Client, log logr.Logger) (*watcher, error) {
	client, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), hc)
	if err != nil {
		return nil, fmt.Errorf("build the metadata client: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	d := &watcher{
		log:     log,
		crds:    metadatainformer.NewFilteredMetadataInformer(client, gvr, metav1.NamespaceAll, 0, toolscache.Indexers{}, nil).Informer(),
		signals: make(chan signal),
	}
	if err := d.crds.SetTransform(strip); err != nil {
		return nil, fmt.Errorf("prepare the watch of CRDs: %w", err)
	}
	d.prober, err = newProber(cfg, hc, d.uid)
	return d, err
}

// Run reports the verdicts on the kinds, in their order, on every change until ctx ends. It can run once.
func (d *watcher) Run(ctx context.Context, kinds []schema.GroupVersionKind, report func([]Verdict)) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	if err := d.listen(watchCtx, stopWatch); err != nil {
		return err
	}
	watch.Go(func() { d.crds.RunWithContext(watchCtx) })
	watch.Go(func() {
		if toolscache.WaitFor(watchCtx, "", d.crds.HasSyncedChecker()) {
			d.tell(watchCtx, signal{synced: true})
		}
	})
	newLoop(d.prober, kinds, report).run(ctx, d.signals)
	return nil
}

// listen forwards what the watch sees. A watch that is not allowed is given up.
func (d *watcher) listen(ctx context.Context, giveUp func()) error {
	err := d.crds.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
		if !apierrors.IsForbidden(err) {
			d.tell(ctx, signal{})
			return
		}
		d.log.Info("may not list and watch customresourcedefinitions: polling discovery instead, starts and stops come up to a minute late", "error", err.Error())
		d.tell(ctx, signal{denied: true})
		giveUp()
	})
	if err != nil {
		return fmt.Errorf("prepare the watch of CRDs: %w", err)
	}
	_, err = d.crds.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				d.tell(ctx, signal{crd: nameOf(obj)})
			}
		},
		UpdateFunc: func(_, obj any) { d.tell(ctx, signal{crd: nameOf(obj)}) },
		DeleteFunc: func(obj any) { d.tell(ctx, signal{crd: nameOf(obj), gone: true}) },
	})
	if err != nil {
		return fmt.Errorf("listen to CRDs: %w", err)
	}
	return nil
}

func (d *watcher) tell(ctx context.Context, s signal) {
	select {
	case d.signals <- s:
	case <-ctx.Done():
	}
}

func (d *watcher) uid(crd string) string {
	if obj, ok, err := d.crds.GetStore().GetByKey(crd); err == nil && ok {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			return string(m.UID)
		}
	}
	return ""
}

func nameOf(obj any) string {
	key, err := toolscache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return ""
	}
	return key.Name
}

// strip keeps of a CRD what is needed: some carry a hundred kilobytes of annotations.
func strip(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta:   m.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion},
	}, nil
}
