// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// These are labels and annotations of the Leases of an installation. Each Lease is for one part of the controllers. A
// manager of an earlier release sets the annotations on the Lease torpor in kube-system.
const (
	// PartLabel is the name of the part of the controllers that the holder of the Lease leads.
	PartLabel = "torpor.dev/part"
	// ControllersAnnotation lists the groups of controllers, within the part, that the holder runs.
	ControllersAnnotation = "torpor.dev/controllers"
	// WatchNamespacesAnnotation lists the only namespaces whose objects the holder handles. Empty means all.
	WatchNamespacesAnnotation = "torpor.dev/watch-namespaces"
	// ManagerDeploymentAnnotation is the name of the Deployment of the holder's Pod, if it can be derived from the
	// Pod's name.
	ManagerDeploymentAnnotation = "torpor.dev/manager-deployment"
	// ManagerVersionAnnotation is the version of the holder.
	ManagerVersionAnnotation = "torpor.dev/manager-version"
	// ManagerActsAnnotation is "true" after the holder has started the controllers. Until then, the holder compares its
	// namespaces with those of other managers.
	ManagerActsAnnotation = "torpor.dev/manager-acts"
)
