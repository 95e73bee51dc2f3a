// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"slices"
	"testing"
)

// The laws are only worth something if a breach is seen.
func TestBreachesAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		in   goPackage
		want []string
	}{
		"a decision may use api and actuator": {
			at: "internal/hibernation", in: goPackage{Deps: []string{"os", modulePrefix + "api/hive/v1", modulePrefix + "actuator"}},
		},
		"a decision must not import os": {
			at: "internal/hibernation", in: goPackage{Imports: []string{"os", "time"}, Deps: []string{"os", "time"}},
			want: []string{"imports os"},
		},
		"a decision must not reach a client": {
			at: "internal/hibernation", in: goPackage{Deps: []string{"k8s.io/client-go/rest", "k8s.io/client-gone"}},
			want: []string{"reaches k8s.io/client-go/rest"},
		},
		"the judge of certificates may parse addresses but not dial": {
			at: "internal/hibernation/csr", in: goPackage{Imports: []string{"net", "net/http"}},
			want: []string{"imports net/http"},
		},
		"a shell must not reach another feature or a cloud": {
			at: "internal/hibernation/controller", in: goPackage{Deps: []string{
				modulePrefix + "internal/hibernation/csr", modulePrefix + "internal/reconcile", modulePrefix + "internal/cf/process", modulePrefix + "internal/cloud/aws",
			}},
			want: []string{"reaches " + modulePrefix + "internal/cf/process", "reaches " + modulePrefix + "internal/cloud/aws"},
		},
		"a cloud must not reach another cloud": {
			at: "internal/cloud/aws", in: goPackage{Deps: []string{modulePrefix + "internal/cloud/gcp", modulePrefix + "actuator"}},
			want: []string{"reaches " + modulePrefix + "internal/cloud/gcp"},
		},
		"the actuator port needs no other module": {
			at: "actuator", in: goPackage{Deps: []string{"context", "example.com/sdk"}},
			want: []string{"reaches example.com/sdk"},
		},
		"the API needs only Kubernetes' own types": {
			at: "api/hive/v1", in: goPackage{Imports: []string{"k8s.io/api/core/v1", "example.com/types"}},
			want: []string{"imports example.com/types"},
		},
		"the library knows nothing of its user": {
			at: "conditional/internal/detect", in: goPackage{Deps: []string{modulePrefix + "conditional", modulePrefix + "api/torpor/v1alpha1"}},
			want: []string{"reaches " + modulePrefix + "api/torpor/v1alpha1"},
		},
		"the command only starts": {
			at: "cmd/torpor", in: goPackage{
				Imports: []string{modulePrefix + "internal/manager", modulePrefix + "internal/reconcile"},
				Deps:    []string{modulePrefix + "internal/reconcile"},
			},
			want: []string{"imports " + modulePrefix + "internal/reconcile"},
		},
		"a plugin goes through the cli": {
			at: "cmd/kubectl-moco", in: goPackage{Imports: []string{modulePrefix + "internal/cli", modulePrefix + "internal/hibernation"}},
			want: []string{"imports " + modulePrefix + "internal/hibernation"},
		},
		"the local world shares no code": {
			at: "local", in: goPackage{Deps: []string{modulePrefix + "local/pki", modulePrefix + "api/hive/v1", modulePrefix + "internal/reconcile"}},
			want: []string{"reaches " + modulePrefix + "internal/reconcile"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ok := lawFor(c.at)
			if !ok {
				t.Fatalf("expected a law for %s, found none", c.at)
			}
			if got := l.findBreaches(c.in); !slices.Equal(got, c.want) {
				t.Errorf("expected %q, found %q", c.want, got)
			}
		})
	}
}

func TestUnknownPackagesHaveNoLaw(t *testing.T) {
	for _, pkg := range []string{"internal/somewhere", "internal/hibernation/store", "internal/cloud/aws/deeper", "internal/reconcile/more", "cmd/other", "pkg"} {
		if l, ok := lawFor(pkg); ok {
			t.Errorf("%s: expected no law, found that for %s", pkg, l.packages)
		}
	}
}
