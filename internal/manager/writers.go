// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/otherwriter"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=hive-controllers-leader;moco;13c200ec.cloudfoundry.org;eirini-controller-leader,verbs=list

// newWriterGuards returns the guards of the features whose kinds another project handles too, by feature.
func newWriterGuards(reader client.Reader, takeOver []string) (map[string]*reconcile.WriterGuard, error) {
	guards := map[string]*reconcile.WriterGuard{}
	for upstream, features := range map[*otherwriter.Upstream][]string{
		new(otherwriter.Hive()):   {"hibernation"},
		new(otherwriter.MOCO()):   {"clustering", "provisioning", "backup"},
		new(otherwriter.Korifi()): {"restart", "spaces", "routes"},
		new(otherwriter.Eirini()): {"lrp"},
	} {
		for _, f := range features {
			guards[f] = &reconcile.WriterGuard{Feature: f, Upstream: *upstream, Reader: reader, TakesOver: slices.Contains(takeOver, f)}
		}
	}
	for _, f := range takeOver {
		if guards[f] == nil {
			return nil, fmt.Errorf("--take-over: expected names of %s, found %q", strings.Join(slices.Sorted(maps.Keys(guards)), ", "), f)
		}
	}
	return guards, nil
}
