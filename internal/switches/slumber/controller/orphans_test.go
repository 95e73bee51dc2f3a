// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestStopsOfASlumberThatIsGoneAreTakenAway has a ClusterDeployment whose Slumber was deleted although the finalizer
// had not run, and a Deployment on which a user wrote a stop of a Slumber.
func TestStopsOfASlumberThatIsGoneAreTakenAway(t *testing.T) {
	env := shared.Get(t)
	now := clocktesting.NewFakePassiveClock(beforeNight())
	cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "cluster"}, "none", "none")
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "example.com/a"}}
	shop := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: "shop"}}
	shop.Spec = appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}
	env.ExpectCreated(t, cd, shop)
	stop := torporv1alpha1.ScheduledStop{Slumber: "gone", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(beforeNight()), Requested: true}}}
	clusters, deployments := kinds.ListOwn()[0], kinds.ListWorkloads()[0]
	c := Controller{client: env.Client, live: env.Client, Clock: now}
	testenv.ExpectNoError(t, c.writeStops(t.Context(), stop.Slumber, memberWrite{memberObject: memberObject{cd, clusters}, stops: stop}))
	name, value, err := stoprecord.ScheduledAnnotation(stop, stop.Slumber)
	testenv.ExpectNoError(t, err)
	env.ExpectAnnotated(t, shop, map[string]string{name: value})

	members := &MemberKinds{}
	members.AddKind(t.Context(), deployments, env.Client)
	defer testenv.StartManager(t, env, Controller{Clock: now, Metrics: NewMetrics(), Members: members}.SetupWithManager)()
	env.WaitFor(t, "the stop is removed from the cluster", cd, func() error {
		return testenv.ErrorIf(len(cd.Status.ScheduledStops) > 0 || cd.Annotations[name] != "", "found %+v and %v", cd.Status.ScheduledStops, cd.Annotations)
	})
	env.WaitFor(t, "the stop is removed from the Deployment", shop, func() error {
		members.ObjectChanged(t.Context(), deployments, shop)
		return testenv.ErrorIf(shop.Annotations[name] != "", "found %v", shop.Annotations)
	})
}

// unservedAPI fails every read of an object, unless its error is nil.
type unservedAPI struct {
	client.Reader
	err error
}

// Get implements client.Reader.
func (u unservedAPI) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return u.err
}

// TestStopsOfASlumberThatCannotBeReadStay has an API server that temporarily does not serve Slumbers, one that does
// not answer, and a Slumber that only the cache lacks.
func TestStopsOfASlumberThatCannotBeReadStay(t *testing.T) {
	resource := schema.GroupResource{Group: "torpor.dev", Resource: "slumbers"}
	notServed := k8serrors.NewGenericServerResponse(404, "get", resource, "nights", "404 page not found", 0, true)
	for what, row := range map[string]struct {
		err      error
		isFailed bool
	}{
		"Slumbers are not served: an error": {notServed, true}, "an API server that does not answer: an error": {errors.New("connection refused"), true}, "a Slumber that only the cache lacks: no error": {nil, false},
	} {
		gone := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "nights"}}
		// A release of the members would panic, because the client is nil.
		err := Controller{live: unservedAPI{err: row.err}}.releaseOrphans(t.Context(), gone, gone.DeepCopy())
		if (err != nil) != row.isFailed {
			t.Errorf("%s: expected a failure: %t, found %v", what, row.isFailed, err)
		}
	}
}
