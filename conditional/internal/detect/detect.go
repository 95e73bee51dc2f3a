// SPDX-License-Identifier: Apache-2.0

// Package detect tells whether an API server serves given kinds, and when that changes. A metadata-only watch of
// the CRDs wakes it, discovery decides, a watch probe makes sure that informers will sync; idle, it makes no request.
package detect

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Detector watches one API server.
type Detector struct {
	log     logr.Logger
	crds    toolscache.SharedIndexInformer
	prober  *prober
	signals chan signal
}

// New returns a detector that has not made a request yet.
func New(cfg *rest.Config, hc *http.Client, log logr.Logger) (*Detector, error) {
	client, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), hc)
	if err != nil {
		return nil, fmt.Errorf("build the metadata client: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	d := &Detector{
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
func (d *Detector) Run(ctx context.Context, kinds []schema.GroupVersionKind, report func([]Verdict)) error {
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
func (d *Detector) listen(ctx context.Context, giveUp func()) error {
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

func (d *Detector) tell(ctx context.Context, s signal) {
	select {
	case d.signals <- s:
	case <-ctx.Done():
	}
}

func (d *Detector) uid(crd string) string {
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
