// SPDX-License-Identifier: Apache-2.0

package v1beta2

import "fmt"

// stops is the only value of an annotation that stops something.
const stops = "true"

// ClusteringStopped says whether somebody wants clustering to be stopped.
func (c *MySQLCluster) ClusteringStopped() bool {
	return c.Annotations[ClusteringStoppedAnnotation] == stops
}

// ReconciliationStopped says whether somebody wants reconciliation to be stopped.
func (c *MySQLCluster) ReconciliationStopped() bool {
	return c.Annotations[ReconciliationStoppedAnnotation] == stops
}

// ChildName is the name that most objects of a cluster have: its Secret, its headless Service and its StatefulSet.
func (c *MySQLCluster) ChildName() string { return "moco-" + c.Name }

// PodName is the name of the Pod with an ordinal.
func (c *MySQLCluster) PodName(ordinal int) string {
	return fmt.Sprintf("%s-%d", c.ChildName(), ordinal)
}

// InstanceHost is the name that the headless Service gives to the instance with an ordinal.
func (c *MySQLCluster) InstanceHost(ordinal int) string {
	return fmt.Sprintf("%s.%s.%s.svc", c.PodName(ordinal), c.ChildName(), c.Namespace)
}
