// SPDX-License-Identifier: Apache-2.0

// Package otherwriter decides whether another project manages an object: Hive, MOCO and Korifi have
// controllers for the kinds that Torpor handles, and two controllers for one object undo each other's work.
package otherwriter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager is the field manager with which Torpor reports another writer. Its entries are no sign that
// Torpor handles the object.
const FieldManager = "torpor-observer"

// ownPrefix is the prefix of all of Torpor's field managers.
const ownPrefix = "torpor"

// Upstream is a project that writes the same kinds.
type Upstream struct {
	Name string
	// Managers are the names of its field managers; a name that ends in a dash is a prefix.
	Managers []string
	// Finalizers are those that only its controllers add.
	Finalizers []string
	// Lease is the name of its leader's Lease, and Deployment that of its controllers.
	Lease, Deployment string
	// Namespaces are those in which its own manuals install it; its webhooks reveal others.
	Namespaces []string
	// Webhooks are the names of its webhook configurations for the kinds.
	Webhooks []string
	// SharesFinalizer reports that its finalizer has the name of Torpor's. It then deletes the objects
	// that belong to an object.
	SharesFinalizer bool
}

// Hive handles ClusterDeployments.
func Hive() Upstream {
	return Upstream{
		Name: "Hive", Managers: []string{"hive-", "hive1-", "hive2-"}, Lease: "hive-controllers-leader", Deployment: "hive-controllers",
		Namespaces: []string{"hive"}, Webhooks: []string{"clusterdeploymentvalidators.admission.hive.openshift.io"},
	}
}

// MOCO handles MySQLClusters.
func MOCO() Upstream {
	return Upstream{
		Name: "MOCO", Managers: []string{"moco-controller"}, Lease: "moco", Deployment: "moco-controller", SharesFinalizer: true,
		Namespaces: []string{"moco-system"}, Webhooks: []string{"moco-mutating-webhook-configuration", "moco-validating-webhook-configuration"},
	}
}

// Korifi handles orgs, spaces, apps and the objects that belong to them. Its controllers are called manager,
// the default of kubebuilder.
func Korifi() Upstream {
	return Upstream{
		Name: "Korifi", Managers: []string{"manager", "korifi-"}, Lease: "13c200ec.cloudfoundry.org", Deployment: "korifi-controllers-controller-manager",
		Namespaces: []string{"korifi", "korifi-controllers-system"},
		Webhooks:   []string{"korifi-controllers-mutating-webhook-configuration", "korifi-controllers-validating-webhook-configuration"},
		Finalizers: []string{
			"cfApp.korifi.cloudfoundry.org", "cfOrg.korifi.cloudfoundry.org", "cfSpace.korifi.cloudfoundry.org",
		},
	}
}

// Eirini handles LRPs.
func Eirini() Upstream {
	return Upstream{
		Name: "eirini-controller", Managers: []string{"eirini-controller"}, Lease: "eirini-controller-leader", Deployment: "eirini-controller",
		Namespaces: []string{"eirini-controller", "cf-system"},
	}
}

// IsManager reports whether a field manager belongs to the project.
func (u Upstream) IsManager(name string) bool {
	return slices.ContainsFunc(u.Managers, func(own string) bool {
		return name == own || strings.HasSuffix(own, "-") && strings.HasPrefix(name, own)
	})
}

// HasWritten reports whether the project has ever written an object with these fields.
func (u Upstream) HasWritten(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return u.IsManager(f.Manager) })
}

// Observed holds all inputs of the decision.
type Observed struct {
	Upstream   Upstream
	Fields     []metav1.ManagedFieldsEntry
	Finalizers []string
	IsDeleting bool
	// Running describes how it is known that the upstream runs, and Webhook is the name of its webhook
	// configuration; empty without such a sign.
	Running, Webhook string
	// IsTakenOver reports that a user has decided that Torpor handles the object.
	IsTakenOver bool
}

// FindWriter returns the writer of the object, and the evidence; it is empty if Torpor may write. Entries of
// the upstream that are older than Torpor's first entry do not count: they stay forever after it is
// uninstalled.
func FindWriter(o Observed) string {
	manager, written := lastEntry(o)
	own := firstOwnEntry(o.Fields)
	left := slices.IndexFunc(o.Finalizers, func(f string) bool { return slices.Contains(o.Upstream.Finalizers, f) })
	switch {
	case o.IsTakenOver:
		return ""
	case o.IsDeleting && !o.Upstream.SharesFinalizer:
		return "" // Torpor deletes its own objects, whatever other writers there are.
	case o.Running != "":
		return fmt.Sprintf("%s runs: %s", o.Upstream.Name, o.Running)
	case manager != "" && (own.IsZero() || !written.Before(own)):
		return fmt.Sprintf("%s has written it: its field manager is %s", o.Upstream.Name, manager)
	case left >= 0 && own.IsZero():
		return fmt.Sprintf("%s has made it: it has the finalizer %s", o.Upstream.Name, o.Finalizers[left])
	case o.Webhook != "" && own.IsZero():
		return fmt.Sprintf("%s is installed: its webhook configuration is %s", o.Upstream.Name, o.Webhook)
	default:
		return ""
	}
}

// lastEntry returns the upstream's newest entry.
func lastEntry(o Observed) (manager string, written time.Time) {
	for _, f := range o.Fields {
		if o.Upstream.IsManager(f.Manager) && (manager == "" || timeOf(f).After(written)) {
			manager, written = f.Manager, timeOf(f)
		}
	}
	return manager, written
}

// firstOwnEntry returns when Torpor wrote first; zero if it never did.
func firstOwnEntry(fields []metav1.ManagedFieldsEntry) (written time.Time) {
	for _, f := range fields {
		if strings.HasPrefix(f.Manager, ownPrefix) && f.Manager != FieldManager && (written.IsZero() || timeOf(f).Before(written)) {
			written = timeOf(f)
		}
	}
	return written
}

func timeOf(f metav1.ManagedFieldsEntry) time.Time {
	if f.Time == nil {
		return time.Time{}
	}
	return f.Time.Time
}
