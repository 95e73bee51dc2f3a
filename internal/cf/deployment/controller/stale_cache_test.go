// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/deployment"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// emptyCache is a cache that has not observed any object yet.
type emptyCache struct{ client.Client }

func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return k8serrors.NewNotFound(schema.GroupResource{Resource: "cfapps"}, key.Name)
}

// A deployment is not finished if its app is only missing from the cache, because finishing is permanent.
func TestAppThatTheCacheLacksIsNotGone(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	app := &korifiv1alpha1.CFApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: hub.CreateNamespace(t), Name: "app"},
		Spec:       korifiv1alpha1.CFAppSpec{DisplayName: "app", DesiredState: korifiv1alpha1.StartedState, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}},
	}
	if err := hub.Client.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	c := Controller{client: emptyCache{hub.Client}, live: hub.Client, Clock: clock.RealClock{}}
	for name, want := range map[string]torporv1alpha1.DeploymentState{"app": torporv1alpha1.DeployingState, "another": torporv1alpha1.SupersededState} {
		d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: "one"}}
		d.Spec.AppRef.Name = name
		seen, err := c.observe(t.Context(), d)
		if plan := deployment.Decide(seen); err != nil || plan.State != want {
			t.Errorf("expected %s for the app %q, found %+v, %v", want, name, plan, err)
		}
	}
}
