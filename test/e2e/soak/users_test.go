// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	started = string(korifiv1alpha1.StartedState)
	stopped = string(korifiv1alpha1.StoppedState)
	// longestPause is the longest pause of a user between two requests.
	longestPause = 4 * time.Second
	// longestRegret is the longest time until a user takes back a request.
	longestRegret = 2 * time.Second
	// requestTimeout is the time limit of a user's request.
	requestTimeout = 30 * time.Second
)

// users send random requests, one user for each kind. Each object is changed by one user at a time.
type users struct {
	*world
	// hold is locked for writing while no user may send a request.
	hold sync.RWMutex
	// one serializes the requests for each object.
	one sync.Map
}

// run sends requests of one kind until ctx ends.
func (u *users) run(ctx context.Context, t *testing.T, random *rand.Rand, act func(context.Context, *testing.T, *rand.Rand)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		u.hold.RLock()
		if ctx.Err() == nil {
			act(context.WithoutCancel(ctx), t, random)
		}
		u.hold.RUnlock()
		timer.Reset(time.Duration(random.Int64N(int64(longestPause))))
	}
}

// send patches an object, and records the intent.
func (u *users) send(ctx context.Context, t *testing.T, obj client.Object, value, patch string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lock, _ := u.one.LoadOrStore(obj.GetName(), &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	end := u.intents.begin(obj.GetName(), value)
	err := u.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)))
	end(outcomeOf(err))
	if outcomeOf(err) == refused {
		t.Errorf("%s of %s: expected no refusal, found %v", value, obj.GetName(), err)
	}
}

// pickUnscheduled returns the index of a random object that no Slumber stops.
func (u *users) pickUnscheduled(random *rand.Rand, n int) int {
	return u.sizes.scheduled + random.IntN(n-u.sizes.scheduled)
}

func (u *users) changeCluster(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	value := []string{running, hibernating}[random.IntN(2)]
	const everything, twice = 20, 4
	if random.IntN(everything) > 0 {
		cluster := u.pickUnscheduled(random, u.sizes.clusters)
		u.setPowerState(ctx, t, cluster, value)
		if random.IntN(twice) == 0 {
			pause(ctx, random, longestRegret)
			u.setPowerState(ctx, t, cluster, map[string]string{running: hibernating, hibernating: running}[value])
		}
		return
	}
	for i := u.sizes.scheduled; i < u.sizes.clusters; i++ {
		u.setPowerState(ctx, t, i, value)
	}
}

func (u *users) setPowerState(ctx context.Context, t *testing.T, cluster int, value string) {
	t.Helper()
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleetOf(cluster), Name: fmt.Sprintf("cluster-%d", cluster)}}
	u.send(ctx, t, cd, value, fmt.Sprintf(`{"spec":{"powerState":%q}}`, value))
}

// changeDeployment stops or starts a Deployment by its annotation.
func (u *users) changeDeployment(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	i := u.pickUnscheduled(random, u.sizes.deployments)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleetOf(i), Name: fmt.Sprintf("web-%d", i)}}
	value, annotation := running, "null"
	if random.IntN(2) == 0 {
		value, annotation = hibernating, `"true"`
	}
	u.send(ctx, t, d, value, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, torporv1alpha1.StoppedAnnotation, annotation))
}

// changeApp starts or stops an app.
func (u *users) changeApp(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	i := random.IntN(u.sizes.apps)
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: fleetOf(i), Name: fmt.Sprintf("app-%d", i)}}
	value := []string{started, started, stopped}[random.IntN(3)]
	u.send(ctx, t, app, value, fmt.Sprintf(`{"spec":{"desiredState":%q}}`, value))
}
