// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Kept is a part of an object of another API. It is preserved and applied as it was written.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Kept struct {
	runtime.RawExtension `json:",inline"`
}

// ObjectMeta is the metadata of an object that is created from a template.
type ObjectMeta struct {
	// Name is the name of a volume claim. It is ignored for other objects.
	// +optional
	Name string `json:"name,omitempty"`
	// Labels are labels of the object, in addition to those of Torpor.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are annotations of the object.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodTemplate is the template of Pods.
type PodTemplate struct {
	// ObjectMeta is the metadata of the Pods.
	// +optional
	ObjectMeta `json:"metadata,omitempty"`
	// Spec is the spec of the Pods. Its mysqld container runs the MySQL server. Torpor adds other containers and volumes.
	Spec PodSpec `json:"spec"`
	// OverwriteContainers customizes containers that Torpor adds to the Pods.
	// +optional
	// +listType=atomic
	OverwriteContainers []OverwriteContainer `json:"overwriteContainers,omitempty"`
}

// PodSpec is the spec of a Pod as it was written. Decoding fills Raw with the whole text, and the other fields for
// validation. Encoding writes Raw, or the other fields if Raw is empty. Callers must apply Raw, so that no field is
// lost or added.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PodSpec struct {
	// Raw is the whole spec, as JSON.
	Raw []byte `json:"-"`
	// Containers are the containers of the Pod. The mysqld container runs the MySQL server.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule=`self.exists(c, c.name == 'mysqld')`,messageExpression=`'expected a container called mysqld, which runs the MySQL server; found only %s; add it'.format([self.map(c, c.name)])`
	// +kubebuilder:validation:XValidation:rule=`!self.exists(c, c.name == 'agent')`,message=`expected no container called agent, because the name is reserved; found one; rename it`
	// +kubebuilder:validation:XValidation:rule=`self.all(c, c.name != 'mysqld' || !has(c.ports) || !c.ports.exists(p, has(p.containerPort) && p.containerPort in [3306, 33060, 33062, 9081]))`,message=`mysqld container: expected none of the ports 3306, 33060, 33062 and 9081, because they are reserved; found one of them; remove it or take another number`
	// +kubebuilder:validation:XValidation:rule=`self.all(c, c.name != 'mysqld' || !has(c.ports) || !c.ports.exists(p, has(p.name) && p.name in ['mysql', 'mysqlx', 'mysql-admin', 'health']))`,message=`mysqld container: expected no port called mysql, mysqlx, mysql-admin or health, because the names are reserved; found one of them; rename it`
	Containers []Container `json:"containers"`
	// InitContainers are the init containers of the Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule=`!self.exists(c, c.name == 'moco-init')`,message=`expected no init container called moco-init, because the name is reserved; found one; rename it`
	InitContainers []Container `json:"initContainers,omitempty"`
	// Volumes are the volumes of the Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule=`!self.exists(v, v.name in ['tmp', 'run', 'var-log', 'mysql-conf', 'mysql-conf-d', 'my-cnf-secret', 'slow-fluent-bit-config'])`,messageExpression=`'expected volumes without reserved names; found %s; rename them'.format([self.filter(v, v.name in ['tmp', 'run', 'var-log', 'mysql-conf', 'mysql-conf-d', 'my-cnf-secret', 'slow-fluent-bit-config']).map(v, v.name)])`
	Volumes []Volume `json:"volumes,omitempty"`
}

// UnmarshalJSON preserves the whole text in Raw.
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

// MarshalJSON returns Raw, or the other fields if Raw is empty.
func (s PodSpec) MarshalJSON() ([]byte, error) {
	if len(s.Raw) > 0 {
		return s.Raw, nil
	}
	type fields PodSpec
	return json.Marshal(fields(s))
}

// Container holds the fields of a container that are validated.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Container struct {
	// Name is the name of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Ports are the ports of the container.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ports []ContainerPort `json:"ports,omitempty"`
}

// ContainerPort holds the fields of a port that are validated.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainerPort struct {
	// Name is the name of the port.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name,omitempty"`
	// ContainerPort is the number of the port.
	// +optional
	ContainerPort int32 `json:"containerPort,omitempty"`
}

// Volume holds the fields of a volume that are validated.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Volume struct {
	// Name is the name of the volume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// OverwriteContainer customizes a container that Torpor adds to the Pods.
type OverwriteContainer struct {
	// Name is the name of the container.
	// +kubebuilder:validation:Enum=agent;copy-moco-init;moco-init;slow-log;mysqld-exporter
	Name string `json:"name"`
	// Resources replaces the resources of the container.
	// +optional
	Resources *Kept `json:"resources,omitempty"`
	// SecurityContext replaces the security context of the container.
	// +optional
	SecurityContext *Kept `json:"securityContext,omitempty"`
}

// VolumeClaimTemplate is the template of a volume claim.
type VolumeClaimTemplate struct {
	// ObjectMeta is the metadata of the claims.
	//
	// +kubebuilder:validation:XValidation:rule=`has(self.name) && self.name != ''`,message=`expected a name; found none; set one, such as mysql-data for the volume with the data`
	ObjectMeta `json:"metadata"`
	// Spec is the spec of the claims.
	//
	// +kubebuilder:validation:XValidation:rule=`has(self.resources) && has(self.resources.requests) && 'storage' in self.resources.requests`,message=`expected resources.requests.storage; found none; set the size of the volume`
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// ServiceTemplate customizes a Service that Torpor creates.
type ServiceTemplate struct {
	// ObjectMeta is the metadata of the Service.
	// +optional
	ObjectMeta `json:"metadata,omitempty"`
	// Spec is the spec of the Service. Torpor sets the ports and the selector.
	// +optional
	Spec *corev1.ServiceSpec `json:"spec,omitempty"`
}
