// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// settled is how long ago a window of the Slumber must have begun or ended for its members to be judged.
const settled = 45 * time.Second

// listUnrested returns the objects that have not reached their last intent, each with what was found.
func (w *world) listUnrested(ctx context.Context, instances []testenv.CloudInstance) ([]string, error) {
	now := time.Now()
	states := map[string][]string{}
	for _, i := range instances {
		states[clusterOf(i)] = append(states[clusterOf(i)], i.State)
	}
	var clusters hivev1.ClusterDeploymentList
	var deployments appsv1.DeploymentList
	var apps korifiv1alpha1.CFAppList
	var databases mocov1beta2.MySQLClusterList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&clusters, &deployments, &apps, &databases, &pods} {
		if err := w.Client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	deployments.Items = slices.DeleteFunc(deployments.Items, func(d appsv1.Deployment) bool { return d.Spec.Template.Labels["web"] == "" })
	if found := []int{len(clusters.Items), len(deployments.Items), len(apps.Items), len(databases.Items)}; !slices.Equal(found, []int{w.sizes.clusters, w.sizes.deployments, w.sizes.apps, w.sizes.databases}) {
		return nil, fmt.Errorf("expected %+v, found %v", w.sizes, found)
	}
	var all []string
	check := func(name, found string, matches map[string]bool) {
		wanted := w.intents.current(name, now)
		if w.isSettled(name, now) && !slices.ContainsFunc(wanted, func(v string) bool { return matches[v] }) {
			all = append(all, fmt.Sprintf("%s should be %v: %s", name, wanted, found))
		}
	}
	for i := range clusters.Items {
		cd := &clusters.Items[i]
		claims, of := readClaims(cd), states[cd.Name]
		check(cd.Name, fmt.Sprintf("its machines are %v, its power state is %s", of, cd.Status.PowerState), map[string]bool{
			hibernating: isEach(of, "stopped") && slices.Contains(claims, claimsStopped), running: isEach(of, "running") && slices.Contains(claims, claimsRunning),
		})
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := countPods(pods.Items, func(p *corev1.Pod) bool { return p.Labels["web"] == d.Name })
		check(d.Name, fmt.Sprintf("%d replicas, %d Pods", *d.Spec.Replicas, n), map[string]bool{
			hibernating: *d.Spec.Replicas == 0 && n == 0, running: *d.Spec.Replicas == replicas && d.Status.ReadyReplicas == replicas && n == replicas,
		})
	}
	for i := range apps.Items {
		app := &apps.Items[i]
		revision := app.Annotations[korifiv1alpha1.RevisionAnnotation]
		of := func(p *corev1.Pod) bool { return p.Labels[korifiv1alpha1.AppGUIDLabel] == app.Name }
		n := countPods(pods.Items, of)
		current := countPods(pods.Items, func(p *corev1.Pod) bool { return of(p) && p.Labels[korifiv1alpha1.VersionLabel] == revision })
		check(app.Name, fmt.Sprintf("%d Pods, %d of revision %s, it is %s", n, current, revision, app.Status.ActualState), map[string]bool{
			stopped: n == 0 && app.Status.ActualState == korifiv1alpha1.StoppedState,
			started: n == replicas && current == replicas && app.Status.ActualState == korifiv1alpha1.StartedState,
		})
		if revisions := w.intents.countRevisions(app.Name); !slices.Contains(revisions, revision) {
			all = append(all, fmt.Sprintf("%s should have one of the revisions %v: %s", app.Name, revisions, revision))
		}
	}
	for i := range databases.Items {
		c := &databases.Items[i]
		check(c.Name, fmt.Sprintf("clustering is stopped: %t, healthy: %t", isStopped(c), isHealthy(c)), map[string]bool{
			stopped: isStopped(c), started: !isStopped(c) && isHealthy(c),
		})
	}
	return all, nil
}

// isSettled reports whether an object's last scheduled intent has had the time to take effect.
func (w *world) isSettled(name string, now time.Time) bool {
	for i := range w.sizes.scheduled {
		if name == "cluster-"+strconv.Itoa(i) || name == "web-"+strconv.Itoa(i) {
			return slices.Equal(w.intents.current(name, now), w.intents.current(name, now.Add(-settled)))
		}
	}
	return true
}

func isEach(states []string, want string) bool {
	return len(states) == machines && !slices.ContainsFunc(states, func(s string) bool { return s != want })
}

func countPods(pods []corev1.Pod, matches func(*corev1.Pod) bool) (n int) {
	for i := range pods {
		if matches(&pods[i]) {
			n++
		}
	}
	return n
}

// countRevisions returns the possible revisions of an app: a stop of a started app begins a revision. A request without
// an answer may or may not have begun one.
func (l *intentLog) countRevisions(app string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	// possible holds the possible pairs of the state and the revision.
	type pair struct {
		state    string
		revision int
	}
	possible := map[pair]bool{{started, 0}: true}
	for _, i := range l.of[app] {
		if i.outcome == refused {
			continue
		}
		next := map[pair]bool{}
		for p := range possible {
			after := pair{i.value, p.revision}
			if i.value == stopped && p.state == started {
				after.revision++
			}
			next[after] = true
			if i.outcome != acknowledged {
				next[p] = true
			}
		}
		possible = next
	}
	all := map[string]bool{}
	for p := range possible {
		all[strconv.Itoa(p.revision)] = true
	}
	return slices.Collect(maps.Keys(all))
}
