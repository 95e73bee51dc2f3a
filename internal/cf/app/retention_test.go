// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// An app that was pushed a hundred times keeps the droplets of its recorded revisions and the five newest droplets.
func TestBuildsThatNoRevisionNeedsExpire(t *testing.T) {
	const pushes = 100
	name := func(i int) string { return fmt.Sprintf("b-%03d", i) }
	o := Observed{App: &korifiv1alpha1.CFApp{}}
	for i := range pushes {
		made := metav1.ObjectMeta{Name: name(i), CreationTimestamp: metav1.NewTime(time.Unix(int64(i/3), 0))}
		b := korifiv1alpha1.CFBuild{ObjectMeta: made}
		b.Spec.PackageRef.Name = "p" + made.Name
		o.Builds = append(o.Builds, b)
		made.Name = b.Spec.PackageRef.Name
		o.Packages = append(o.Packages, korifiv1alpha1.CFPackage{ObjectMeta: made})
	}
	// The current droplet is an old one that was set again. Another old droplet belongs to a revision that is still
	// recorded.
	o.App.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: name(7)}
	o.App.Status.Restarts = []korifiv1alpha1.Restart{{Revision: 90, Droplet: name(90)}, {Revision: 3, Droplet: name(3)}, {Revision: 2}}
	wanted := map[string]bool{name(3): true, name(7): true, name(90): true}
	for i := range maxUnused {
		wanted[name(pushes-1-i)] = true
	}
	passes := 0
	for plan := Decide(o); len(plan.ExpiredBuilds)+len(plan.ExpiredPackages) > 0; plan = Decide(o) {
		passes++
		gone := map[string]bool{}
		for _, b := range plan.ExpiredBuilds {
			gone[b.Name] = true
		}
		for _, p := range plan.ExpiredPackages {
			gone[p.Name] = true
		}
		if len(gone) > 2*maxExpired || passes > pushes {
			t.Fatalf("expected at most %d deletions a pass, found %d in pass %d", 2*maxExpired, len(gone), passes)
		}
		next := Observed{App: o.App}
		for _, b := range o.Builds {
			if !gone[b.Name] {
				next.Builds = append(next.Builds, b)
			}
		}
		for _, p := range o.Packages {
			if !gone[p.Name] {
				next.Packages = append(next.Packages, p)
			}
		}
		o = next
	}
	left, sources := map[string]bool{}, map[string]bool{}
	for _, b := range o.Builds {
		left[b.Name] = true
	}
	for _, p := range o.Packages {
		sources[p.Name[1:]] = true
	}
	if diff := cmp.Diff(wanted, left); diff != "" {
		t.Errorf("builds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wanted, sources); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}
