// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// MaxMachineSets is the maximum number of MachineSets of one pool. The status lists all of them.
	MaxMachineSets = 100
	// maxReplicas is the maximum in the schema. It is the number of nodes that Kubernetes supports.
	maxReplicas = 5000
	// maxPartBytes limits the encoded labels and taints. Short elements such as {} need the most memory per byte when
	// they are decoded.
	maxPartBytes = 64 << 10
	// maxReasonBytes and maxMessageBytes are the limits in the schema.
	maxReasonBytes, maxMessageBytes = 256, 1024
)

// ErrMalformed means that a list from a cluster contains an object that is too large, or is not a MachineSet or
// MachineAutoscaler.
var ErrMalformed = errors.New("expected MachineSets and MachineAutoscalers, found another object, or an object that is too large")

// MachineSet is the part of a cluster's MachineSet that Torpor reads.
type MachineSet struct {
	Name, UID, ResourceVersion string
	Labels                     map[string]string
	IsDeleting                 bool
	// Replicas is nil if spec.replicas is not set.
	Replicas      *int32
	ReadyReplicas int32
	// NodeLabels and Taints are set on new nodes of the MachineSet.
	NodeLabels map[string]string
	Taints     []corev1.Taint
	// Zone and Location locate the MachineSet's machines; the cloud determines which of them is set. Both are empty if
	// the location is unknown.
	Zone, Location            string
	ErrorReason, ErrorMessage string
}

// Autoscaler is the part of a cluster's MachineAutoscaler that Torpor reads.
type Autoscaler struct {
	Name   string
	Labels map[string]string
	// Target is the name of the scaled MachineSet.
	Target   string
	Min, Max int32
}

// rawMetadata is the part of an object's metadata that is decoded.
type rawMetadata struct {
	Name              string          `json:"name"`
	UID               string          `json:"uid"`
	ResourceVersion   string          `json:"resourceVersion"`
	DeletionTimestamp *string         `json:"deletionTimestamp"`
	Labels            json.RawMessage `json:"labels"`
}

// DecodeMachineSet decodes a MachineSet.
func DecodeMachineSet(item []byte) (MachineSet, error) {
	var raw struct {
		Metadata rawMetadata `json:"metadata"`
		Spec     struct {
			Replicas *int32 `json:"replicas"`
			Template struct {
				Spec struct {
					Metadata struct {
						Labels json.RawMessage `json:"labels"`
					} `json:"metadata"`
					Taints       json.RawMessage `json:"taints"`
					ProviderSpec struct {
						Value json.RawMessage `json:"value"`
					} `json:"providerSpec"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
		Status struct {
			ReadyReplicas int32  `json:"readyReplicas"`
			ErrorReason   string `json:"errorReason"`
			ErrorMessage  string `json:"errorMessage"`
		} `json:"status"`
	}
	if json.Unmarshal(item, &raw) != nil || !isName(raw.Metadata.Name) {
		return MachineSet{}, ErrMalformed
	}
	set := MachineSet{
		Name: raw.Metadata.Name, UID: raw.Metadata.UID, ResourceVersion: raw.Metadata.ResourceVersion, IsDeleting: raw.Metadata.DeletionTimestamp != nil,
		Replicas: raw.Spec.Replicas, ReadyReplicas: raw.Status.ReadyReplicas,
		ErrorReason: cutText(raw.Status.ErrorReason, maxReasonBytes), ErrorMessage: cutText(raw.Status.ErrorMessage, maxMessageBytes),
	}
	set.Zone, set.Location = decodePlace(raw.Spec.Template.Spec.ProviderSpec.Value)
	err := errors.Join(
		decodePart(raw.Metadata.Labels, &set.Labels), decodePart(raw.Spec.Template.Spec.Metadata.Labels, &set.NodeLabels),
		decodePart(raw.Spec.Template.Spec.Taints, &set.Taints),
	)
	if err != nil {
		return MachineSet{}, ErrMalformed
	}
	return set, nil
}

// DecodeAutoscaler decodes a MachineAutoscaler.
func DecodeAutoscaler(item []byte) (Autoscaler, error) {
	var raw struct {
		Metadata rawMetadata `json:"metadata"`
		Spec     struct {
			MinReplicas    int32 `json:"minReplicas"`
			MaxReplicas    int32 `json:"maxReplicas"`
			ScaleTargetRef struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"scaleTargetRef"`
		} `json:"spec"`
	}
	if json.Unmarshal(item, &raw) != nil || !isName(raw.Metadata.Name) {
		return Autoscaler{}, ErrMalformed
	}
	autoscaler := Autoscaler{Name: raw.Metadata.Name, Min: raw.Spec.MinReplicas, Max: raw.Spec.MaxReplicas}
	if raw.Spec.ScaleTargetRef.Kind == MachineSetKind {
		autoscaler.Target = raw.Spec.ScaleTargetRef.Name
	}
	return autoscaler, decodePart(raw.Metadata.Labels, &autoscaler.Labels)
}

// decodePlace reads the fields that contain zones on AWS, GCP, Azure and IBM Cloud.
func decodePlace(providerSpec json.RawMessage) (zone, location string) {
	var raw struct {
		Placement struct {
			AvailabilityZone string `json:"availabilityZone"`
		} `json:"placement"`
		Zone     string `json:"zone"`
		Location string `json:"location"`
	}
	if json.Unmarshal(providerSpec, &raw) != nil {
		return "", "" // On this platform, the fields have other types.
	}
	return cmp.Or(raw.Placement.AvailabilityZone, raw.Zone), raw.Location
}

func decodePart(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	if len(raw) > maxPartBytes || json.Unmarshal(raw, into) != nil {
		return ErrMalformed
	}
	return nil
}

// isName reports whether a text is safe in a path and in a message.
func isName(name string) bool {
	const maxNameBytes = 253
	return name != "" && len(name) <= maxNameBytes && len(content.IsPathSegmentName(name)) == 0 && cutText(name, maxNameBytes) == name
}

// cutText returns the beginning of a text from a cluster, as one line.
func cutText(text string, limit int) string {
	text = strings.ToValidUTF8(text[:min(len(text), limit)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// Owns reports whether a MachineSet belongs to the pool, according to its label. A MachineSet without the label is
// identified by its name, which the installer builds from the infraID, the pool and a zone.
func (j *Job) Owns(set *MachineSet) bool {
	if label := set.Labels[hivev1.MachinePoolNameLabel]; label != "" {
		return label == j.Spec.Name
	}
	if set.IsDeleting || j.InfraID == "" {
		return false
	}
	own := j.InfraID + "-" + j.Spec.Name
	if set.Name == own {
		return true
	}
	zone, isOwn := strings.CutPrefix(set.Name, own+"-")
	if !isOwn || zone == "" || slices.ContainsFunc(j.OtherPools, func(other string) bool { return matchesLongerPoolName(other, j.Spec.Name, j.InfraID, set.Name) }) {
		return false
	}
	// Users who copy MachineSets name the copies INFRAID-worker-gpu-ZONE. Such copies do not belong to the pool
	// "worker".
	return set.Zone == "" || zone == set.Zone || zone == set.Location+set.Zone || strings.HasSuffix(set.Zone, "-"+zone)
}

// matchesLongerPoolName reports whether another pool has a longer name than this pool, and the MachineSet is named
// after the other pool.
func matchesLongerPoolName(other, pool, infraID, name string) bool {
	full := infraID + "-" + other
	return len(other) > len(pool) && (name == full || strings.HasPrefix(name, full+"-"))
}
