// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// These permissions allow the manager to detect other projects by the names of their Leases, Deployments and webhook
// configurations. Without them, Torpor relies on the metadata of the objects.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=hive-controllers-leader;moco;13c200ec.cloudfoundry.org;eirini-controller-leader,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=hive-controllers;moco-controller;korifi-controllers-controller-manager;eirini-controller,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=clusterdeploymentvalidators.admission.hive.openshift.io;moco-mutating-webhook-configuration;moco-validating-webhook-configuration;korifi-controllers-mutating-webhook-configuration;korifi-controllers-validating-webhook-configuration,verbs=get

// newWriterGuards returns the guards of the features whose kinds another project handles as well, by feature.
func newWriterGuards(reader client.Reader, takeOver []string) map[string]*reconcile.WriterGuard {
	guards := map[string]*reconcile.WriterGuard{}
	for upstream, features := range map[*otherwriter.Upstream][]string{
		new(otherwriter.Hive()):   {"hibernation", "sync", "machinepools"},
		new(otherwriter.MOCO()):   {"clustering", "provisioning", "backup"},
		new(otherwriter.Korifi()): {"restart", "spaces", "routes", "tasks"},
		new(otherwriter.Eirini()): {"lrp"},
	} {
		signs := &reconcile.UpstreamSigns{Upstream: *upstream, Reader: reader}
		for _, f := range features {
			guards[f] = &reconcile.WriterGuard{Feature: f, Signs: signs, TakesOver: slices.Contains(takeOver, f)}
		}
	}
	return guards
}

// checkTakeOver returns an error if one of the features has no guard.
func checkTakeOver(features []string) error {
	guarded := slices.Sorted(maps.Keys(newWriterGuards(nil, nil)))
	for _, f := range features {
		if !slices.Contains(guarded, f) {
			return fmt.Errorf("--take-over: expected each name to be one of %s, found %q", strings.Join(guarded, ", "), f)
		}
	}
	return nil
}
