// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Kept is an object of another API, kept as it was written, so that it can be applied as it was written.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Kept struct {
	runtime.RawExtension `json:",inline"`
}

// ObjectMeta is the metadata of an object that is made from a template.
type ObjectMeta struct {
	// Name of a volume claim; elsewhere it is ignored.
	// +optional
	Name string `json:"name,omitempty"`
	// Labels of the object, beside those of Torpor.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the object.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodTemplate is what Pods are made from.
type PodTemplate struct {
	// ObjectMeta of the Pods.
	// +optional
	ObjectMeta `json:"metadata,omitempty"`
	// Spec of the Pods; its container mysqld runs the MySQL server. What Torpor adds is left out here.
	Spec PodSpec `json:"spec"`
	// OverwriteContainers changes containers that are added to the Pods.
	// +optional
	// +listType=atomic
	OverwriteContainers []OverwriteContainer `json:"overwriteContainers,omitempty"`
}

// PodSpec is the spec of a Pod as it was written. Decoding fills Raw with all of it and the other fields with what
// rules look at; encoding takes Raw, or the other fields if Raw is empty. Apply Raw: nothing is lost then, and
// nothing is added that nobody wrote.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PodSpec struct {
	// Raw is the whole, as JSON.
	Raw []byte `json:"-"`
	// Containers of the Pod; mysqld is the MySQL server.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule=`self.exists(c, c.name == 'mysqld')`,messageExpression=`'expected a container called mysqld, which runs the MySQL server; found only %s; add it'.format([self.map(c, c.name)])`
	// +kubebuilder:validation:XValidation:rule=`!self.exists(c, c.name == 'agent')`,message=`expected no container called agent, because the name is reserved; found one; rename it`
	// +kubebuilder:validation:XValidation:rule=`self.all(c, c.name != 'mysqld' || !has(c.ports) || !c.ports.exists(p, has(p.containerPort) && p.containerPort in [3306, 33060, 33062, 9081]))`,message=`container mysqld: expected none of the ports 3306, 33060, 33062 and 9081, because they are reserved; found one of them; remove it or take another number`
	// +kubebuilder:validation:XValidation:rule=`self.all(c, c.name != 'mysqld' || !has(c.ports) || !c.ports.exists(p, has(p.name) && p.name in ['mysql', 'mysqlx', 'mysql-admin', 'health']))`,message=`container mysqld: expected no port called mysql, mysqlx, mysql-admin or health, because the names are reserved; found one of them; rename it`
	Containers []Container `json:"containers"`
	// InitContainers of the Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule=`!self.exists(c, c.name == 'moco-init')`,message=`expected no init container called moco-init, because the name is reserved; found one; rename it`
	InitContainers []Container `json:"initContainers,omitempty"`
	// Volumes of the Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule=`!self.exists(v, v.name in ['tmp', 'run', 'var-log', 'mysql-conf', 'mysql-conf-d', 'my-cnf-secret', 'slow-fluent-bit-config'])`,messageExpression=`'expected volumes with names of their own; found the reserved names %s; rename them'.format([self.filter(v, v.name in ['tmp', 'run', 'var-log', 'mysql-conf', 'mysql-conf-d', 'my-cnf-secret', 'slow-fluent-bit-config']).map(v, v.name)])`
	Volumes []Volume `json:"volumes,omitempty"`
}

// UnmarshalJSON keeps everything in Raw.
func (s *PodSpec) UnmarshalJSON(data []byte) error {
	type fields PodSpec
	var f fields
	if err := utiljson.Unmarshal(data, &f); err != nil {
		return err
	}
	*s = PodSpec(f)
	s.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON writes what was read.
func (s PodSpec) MarshalJSON() ([]byte, error) {
	if len(s.Raw) > 0 {
		return s.Raw, nil
	}
	type fields PodSpec
	return json.Marshal(fields(s))
}

// Container is what rules look at of a container.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Container struct {
	// Name of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Ports of the container.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ports []ContainerPort `json:"ports,omitempty"`
}

// ContainerPort is what rules look at of a port.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainerPort struct {
	// Name of the port.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name,omitempty"`
	// ContainerPort is the number.
	// +optional
	ContainerPort int32 `json:"containerPort,omitempty"`
}

// Volume is what rules look at of a volume.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Volume struct {
	// Name of the volume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// OverwriteContainer changes a container that is added to the Pods.
type OverwriteContainer struct {
	// Name of the container.
	// +kubebuilder:validation:Enum=agent;copy-moco-init;moco-init;slow-log;mysqld-exporter
	Name string `json:"name"`
	// Resources that the container has instead.
	// +optional
	Resources *Kept `json:"resources,omitempty"`
	// SecurityContext that the container has instead.
	// +optional
	SecurityContext *Kept `json:"securityContext,omitempty"`
}

// VolumeClaimTemplate is what volume claims are made from.
type VolumeClaimTemplate struct {
	// ObjectMeta of the claims.
	//
	// +kubebuilder:validation:XValidation:rule=`has(self.name) && self.name != ''`,message=`expected a name; found none; name the claim, mysql-data for the data`
	ObjectMeta `json:"metadata"`
	// Spec of the claims.
	//
	// +kubebuilder:validation:XValidation:rule=`has(self.resources) && has(self.resources.requests) && 'storage' in self.resources.requests`,message=`expected resources.requests.storage; found none; say how large the volume is`
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// ServiceTemplate changes a Service that Torpor makes.
type ServiceTemplate struct {
	// ObjectMeta of the Service.
	// +optional
	ObjectMeta `json:"metadata,omitempty"`
	// Spec of the Service; its ports and selector are Torpor's.
	// +optional
	Spec *corev1.ServiceSpec `json:"spec,omitempty"`
}
