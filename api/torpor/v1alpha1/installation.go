// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ControllersAnnotation lists, on the Lease torpor in kube-system, the groups of controllers of the manager that acts on the cluster.
	ControllersAnnotation = "torpor.dev/controllers"
	// WatchNamespacesAnnotation lists, on the Lease torpor in kube-system, the only namespaces whose objects the manager handles. Empty means all.
	WatchNamespacesAnnotation = "torpor.dev/watch-namespaces"
	// ManagerDeploymentAnnotation names, on the Lease torpor in kube-system, the Deployment of the manager's Pod, if it
	// can be derived from the Pod's name.
	ManagerDeploymentAnnotation = "torpor.dev/manager-deployment"
	// ManagerVersionAnnotation holds, on the Lease torpor in kube-system, the version of the manager that acts on the cluster.
	ManagerVersionAnnotation = "torpor.dev/manager-version"
)
