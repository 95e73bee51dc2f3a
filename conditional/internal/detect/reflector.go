// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"math"
	"time"

	"github.com/go-logr/logr"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
)

// runWatch holds one watch with a reflector, which renews it, lists anew after a gap, and pauses while the server does not
// answer. Its own log is dropped: verdicts report that the server does not answer.
func (s *restServer) runWatch(ctx context.Context, w *resourceWatch) {
	source := &listWatcher{client: s.metadata.Resource(w.target.groupVersionResource()), watch: w}
	toolscache.NewReflectorWithOptions(
		&toolscache.ListWatch{ListWithContextFunc: source.listMetadata, WatchFuncWithContext: source.openWatch},
		&metav1.PartialObjectMetadata{}, w,
		toolscache.ReflectorOptions{Name: "detect " + w.target.resource, Backoff: &wait.Backoff{
			Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 10 * time.Second,
		}},
	).RunWithContext(logr.NewContext(ctx, logr.Discard()))
}

func (t watchTarget) groupVersionResource() schema.GroupVersionResource {
	group := "apiextensions.k8s.io"
	if t.resource == apiServiceResource {
		group = "apiregistration.k8s.io"
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: t.resource}
}

// listWatcher lists and watches, and handles errors before the reflector, which retries after any of them.
type listWatcher struct {
	client metadata.Getter
	watch  *resourceWatch
}

func (s *listWatcher) listMetadata(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := s.client.List(short, s.withNameSelector(o))
	if err != nil {
		return nil, s.handleError(ctx, err)
	}
	return list, nil
}

// openWatch sets a deadline: the server ends a watch after its timeout, so one that is still open then has lost its
// connection without an error.
func (s *listWatcher) openWatch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	limit := lookTimeout
	if o.TimeoutSeconds != nil {
		limit += time.Duration(*o.TimeoutSeconds) * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	w, err := s.client.Watch(bounded, s.withNameSelector(o))
	if err != nil {
		cancel()
		return nil, s.handleError(ctx, err)
	}
	return &boundedWatch{Interface: w, cancel: cancel}, nil
}

func (s *listWatcher) withNameSelector(o metav1.ListOptions) metav1.ListOptions {
	if name := s.watch.target.name; name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return o
}

// handleError gives the watch up when it is not allowed, or when the server has no such thing.
func (s *listWatcher) handleError(ctx context.Context, err error) error {
	switch {
	// The watch was stopped, and this error is its end.
	case ctx.Err() != nil:
	case k8serrors.IsForbidden(err) || k8serrors.IsNotFound(err) || k8serrors.IsMethodNotSupported(err):
		s.watch.giveUp(err)
	default:
		s.watch.noteDisconnect()
	}
	return err
}

// boundedWatch releases the timer of its deadline when it is stopped.
type boundedWatch struct {
	apiwatch.Interface

	cancel context.CancelFunc
}

// Stop ends the watch.
func (s *boundedWatch) Stop() {
	s.Interface.Stop()
	s.cancel()
}
