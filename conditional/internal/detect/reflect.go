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

// watch holds one watch with a reflector, which renews it, lists anew after a gap, and pauses while the server does not
// answer. Its own log is dropped: that the server does not answer is told by verdicts.
func (s *server) watch(ctx context.Context, w *watch) {
	source := &source{client: s.metadata.Resource(w.target.gvr()), watch: w}
	toolscache.NewReflectorWithOptions(
		&toolscache.ListWatch{ListWithContextFunc: source.list, WatchFuncWithContext: source.open},
		&metav1.PartialObjectMetadata{}, w,
		toolscache.ReflectorOptions{Name: "detect " + w.target.resource, Backoff: &wait.Backoff{
			Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 10 * time.Second,
		}},
	).RunWithContext(logr.NewContext(ctx, logr.Discard()))
}

func (t target) gvr() schema.GroupVersionResource {
	group := "apiextensions.k8s.io"
	if t.resource == apiServiceResource {
		group = "apiregistration.k8s.io"
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: t.resource}
}

// source lists and watches, and sees the errors before the reflector does.
type source struct {
	client metadata.Getter
	watch  *watch
}

func (s *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := s.client.List(short, s.selecting(o))
	if err != nil {
		return nil, s.check(ctx, err)
	}
	return list, nil
}

// open has a deadline as well: the server ends a watch after its timeout, and one that is still open then is dead.
func (s *source) open(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	limit := lookTimeout
	if o.TimeoutSeconds != nil {
		limit += time.Duration(*o.TimeoutSeconds) * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	w, err := s.client.Watch(bounded, s.selecting(o))
	if err != nil {
		cancel()
		return nil, s.check(ctx, err)
	}
	return &stream{Interface: w, cancel: cancel}, nil
}

func (s *source) selecting(o metav1.ListOptions) metav1.ListOptions {
	if name := s.watch.target.name; name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return o
}

// check gives the watch up when it is not allowed, or when the server has no such thing.
func (s *source) check(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
	case k8serrors.IsForbidden(err) || k8serrors.IsNotFound(err) || k8serrors.IsMethodNotSupported(err):
		s.watch.refuse(err)
	default:
		s.watch.lose()
	}
	return err
}

// stream frees its deadline when it is stopped.
type stream struct {
	apiwatch.Interface

	cancel context.CancelFunc
}

// Stop ends the watch.
func (s *stream) Stop() {
	s.Interface.Stop()
	s.cancel()
}
