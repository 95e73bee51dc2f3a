// SPDX-License-Identifier: Apache-2.0

// Package otherwriter determines whether another project handles an object. Hive, MOCO and Korifi have controllers for
// kinds that Torpor handles, and two controllers for one object would undo each other's writes.
package otherwriter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager is the field manager with which Torpor reports another writer. Its entries do not count as writes by
// Torpor.
const FieldManager = "torpor-observer"

// ownPrefix is the prefix of all of Torpor's field managers.
const ownPrefix = "torpor"

// Upstream is a project with controllers for the same kinds as Torpor.
type Upstream struct {
	Name string
	// Managers are the names of the project's field managers. A name that ends with a dash is a prefix.
	Managers []string
	// Finalizers are the finalizers that only the project's controllers add.
	Finalizers []string
	// Lease is the name of the project's Lease for leader election, and Deployment is the name of its controllers'
	// Deployment.
	Lease, Deployment string
	// Namespaces are the namespaces in which the project's documentation installs it. Other namespaces are found
	// through its webhooks.
	Namespaces []string
	// Webhooks are the names of the project's webhook configurations for the kinds.
	Webhooks []string
	// SharesFinalizer is true if the project's finalizer has the same name as Torpor's, so that the project, too, would
	// delete the dependents of a deleted object.
	SharesFinalizer bool
}

// Hive returns the project whose controllers handle ClusterDeployments.
func Hive() Upstream {
	return Upstream{
		Name: "Hive", Managers: []string{"hive-", "hive1-", "hive2-"}, Lease: "hive-controllers-leader", Deployment: "hive-controllers",
		Namespaces: []string{"hive"}, Webhooks: []string{"clusterdeploymentvalidators.admission.hive.openshift.io"},
	}
}

// MOCO returns the project whose controllers handle MySQLClusters.
func MOCO() Upstream {
	return Upstream{
		Name: "MOCO", Managers: []string{"moco-controller"}, Lease: "moco", Deployment: "moco-controller", SharesFinalizer: true,
		Namespaces: []string{"moco-system"}, Webhooks: []string{"moco-mutating-webhook-configuration", "moco-validating-webhook-configuration"},
	}
}

// Korifi returns the project whose controllers handle orgs, spaces, apps and the objects that belong to them. The field
// manager of its controllers is manager, which is kubebuilder's default.
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

// Eirini returns the project whose controllers handle LRPs.
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

// HasWritten reports whether one of these entries belongs to the project.
func (u Upstream) HasWritten(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return u.IsManager(f.Manager) })
}

// Observed contains all inputs of the decision.
type Observed struct {
	Upstream   Upstream
	Fields     []metav1.ManagedFieldsEntry
	Finalizers []string
	IsDeleting bool
	// Running describes the evidence that the upstream is running. Webhook is the name of its webhook configuration.
	// Both are empty if not found.
	Running, Webhook string
	// IsTakenOver is true if a user has decided that Torpor handles the object.
	IsTakenOver bool
}

// FindWriter describes the other writer of the object and the evidence for it. It returns "" if Torpor may write.
// Entries of the upstream that are older than Torpor's oldest entry are ignored, because they remain after the upstream
// is uninstalled.
func FindWriter(o Observed) string {
	manager, written := lastEntry(o)
	own := firstOwnEntry(o.Fields)
	left := slices.IndexFunc(o.Finalizers, func(f string) bool { return slices.Contains(o.Upstream.Finalizers, f) })
	switch {
	case o.IsTakenOver:
		return ""
	case o.IsDeleting && !o.Upstream.SharesFinalizer:
		return "" // Torpor finalizes a deleted object, even if there are other writers.
	case o.Running != "":
		return fmt.Sprintf("%s runs: %s", o.Upstream.Name, o.Running)
	case manager != "" && (own.IsZero() || !written.Before(own)):
		return fmt.Sprintf("%s has written the object: its field manager is %s", o.Upstream.Name, manager)
	case left >= 0 && own.IsZero():
		return fmt.Sprintf("%s has created or changed the object: its finalizer is %s", o.Upstream.Name, o.Finalizers[left])
	case o.Webhook != "" && own.IsZero():
		return fmt.Sprintf("%s is installed: its webhook configuration is %s", o.Upstream.Name, o.Webhook)
	default:
		return ""
	}
}

// lastEntry returns the field manager and the time of the upstream's newest entry.
func lastEntry(o Observed) (manager string, written time.Time) {
	for _, f := range o.Fields {
		if o.Upstream.IsManager(f.Manager) && (manager == "" || timeOf(f).After(written)) {
			manager, written = f.Manager, timeOf(f)
		}
	}
	return manager, written
}

// firstOwnEntry returns the time of Torpor's oldest entry, or the zero time if none exists.
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
