// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

type newInformerFunc func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// withWatchDraining makes informers that drain a watch when they stop it: controller-runtime puts a filter into metadata
// watches whose goroutine blocks for ever on an event that is not received. For caches of many namespaces see
// stoppableInformer.
func withWatchDraining(next newInformerFunc, many bool) newInformerFunc {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if calls, ok := lw.(*toolscache.ListWatch); ok && calls.WatchFuncWithContext != nil {
			open := calls.WatchFuncWithContext
			calls.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := open(ctx, opts)
				if err != nil {
					return nil, err
				}
				return drainedWatch{w}, nil
			}
		}
		made := next(lw, obj, resync, indexers)
		if many {
			return newStoppableInformer(made)
		}
		return made
	}
}

type drainedWatch struct{ watch.Interface }

// Stop ends the watch, whose channel closes soon after.
func (e drainedWatch) Stop() {
	e.Interface.Stop()
	go func() {
		for more := true; more; {
			_, more = <-e.ResultChan()
		}
	}()
}
