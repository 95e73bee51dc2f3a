// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/reconcile"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// Race r of ADR 0010: the LRP of a new StatefulSet is deleted. Its finalizer is not removed until the cache contains
// the StatefulSet.
func TestAnLRPIsKeptForAStatefulSetThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	c := Controller{
		client: hub.Client, live: hub.Client, Clock: clock.RealClock{}, Pods: lrp.PodOptions{PullPolicy: corev1.PullAlways},
		released: cache.NewLRUExpireCacheWithClock(maxReleased, clock.RealClock{}),
	}
	namespace := hub.CreateNamespace(t)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	obj := process.BuildLRP(process.LRPSource{
		App: &korifiv1alpha1.CFApp{ObjectMeta: in("app")}, Process: &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "process", UID: "process"}},
		Droplet: &korifiv1alpha1.Droplet{Registry: korifiv1alpha1.Registry{Image: "example.com/app:1"}}, Settings: &corev1.Secret{},
	}, process.CreateLRP{Name: "lrp", Revision: 4, Instances: 1})
	obj.Finalizers = []string{eiriniv1.LRPFinalizer}
	testenv.ExpectNoError(t, hub.Client.Create(t.Context(), obj))
	set := lrp.BuildStatefulSet(obj, c.Pods)
	testenv.ExpectNoError(t, hub.Client.Create(t.Context(), set))
	testenv.ExpectNoError(t, hub.Client.Delete(t.Context(), obj))
	read := func() *eiriniv1.LRP {
		var current eiriniv1.LRP
		testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), &current))
		return &current
	}
	seen := lrp.Observed{LRP: read()}
	if err := c.act(t.Context(), seen, lrp.Decide(seen)); !errors.Is(err, reconcile.ErrStale) {
		t.Errorf("expected ErrStale, found %v", err)
	}
	read()
	testenv.ExpectNoError(t, hub.Client.Delete(t.Context(), set))
	testenv.ExpectNoError(t, c.act(t.Context(), seen, lrp.Decide(seen)))
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), &eiriniv1.LRP{}); !k8serrors.IsNotFound(err) {
		t.Errorf("expected the LRP to be released once its StatefulSet is gone, found %v", err)
	}
	// The cache still contains the released LRP. Another pass must send no request, not even one that would fail.
	c.live, c.client = nil, nil
	if err := c.act(t.Context(), seen, lrp.Decide(seen)); !errors.Is(err, reconcile.ErrStale) {
		t.Errorf("expected ErrStale without a request, found %v", err)
	}
}
