// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// RevisionSettings holds the settings that a rollback restores for a process, in addition to the droplet.
type RevisionSettings struct {
	Command     string                     `json:"command,omitempty"`
	HealthCheck korifiv1alpha1.HealthCheck `json:"healthCheck"`
	Ports       []int32                    `json:"ports,omitempty"`
	Environment map[string][]byte          `json:"-"`
}

// SettingsOf returns the settings of a process with the given environment.
func SettingsOf(p *korifiv1alpha1.CFProcess, environment map[string][]byte) RevisionSettings {
	return RevisionSettings{Command: p.Spec.Command, HealthCheck: p.Spec.HealthCheck, Ports: p.Spec.Ports, Environment: environment}
}

// BuildSettingsSecret returns the Secret that stores the settings while a revision needs them. The process owns the
// Secret, because LRPs are deleted at a restart.
func BuildSettingsSecret(p *korifiv1alpha1.CFProcess, settings RevisionSettings) (*corev1.Secret, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	environment, err := json.Marshal(settings.Environment)
	if err != nil {
		return nil, fmt.Errorf("write the environment: %w", err)
	}
	owner := *metav1.NewControllerRef(p, korifiv1alpha1.CFProcessKind())
	owner.BlockOwnerDeletion = nil
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: revision.SettingsName(p.Name, slices.Concat(text, environment)),
			Labels:          map[string]string{torporv1alpha1.SettingsLabel: "", korifiv1alpha1.ProcessGUIDLabel: p.Name},
			Annotations:     map[string]string{torporv1alpha1.SettingsAnnotation: string(text)},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Immutable: new(true), Data: settings.Environment,
	}, nil
}

// ReadSettings returns the settings in a Secret.
func ReadSettings(secret *corev1.Secret) (RevisionSettings, error) {
	// Bound services are not part of the app's own environment, so they are neither shown nor restored.
	settings := RevisionSettings{Environment: maps.Clone(secret.Data)}
	delete(settings.Environment, ServicesVariable)
	if err := json.Unmarshal([]byte(secret.Annotations[torporv1alpha1.SettingsAnnotation]), &settings); err != nil {
		return settings, fmt.Errorf("decode the settings in the Secret %s: %w", secret.Name, err)
	}
	return settings, nil
}

// FindAppEnvironment returns the environment of an app in a revision, from the settings of its processes. The
// environments may differ, because a process may have been scaled up later than others. FindAppEnvironment therefore
// returns the environment of the web process, or of the first type in alphabetical order.
func FindAppEnvironment(settings map[string]RevisionSettings) map[string][]byte {
	if web, has := settings[korifiv1alpha1.WebProcess]; has {
		return web.Environment
	}
	for _, processType := range slices.Sorted(maps.Keys(settings)) {
		return settings[processType].Environment
	}
	return nil
}

// environmentFrom returns references to the variables in a Secret, so the values are not copied.
func environmentFrom(secret *corev1.Secret) []corev1.EnvVar {
	var all []corev1.EnvVar
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		all = append(all, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret.Name}, Key: key,
		}}})
	}
	return all
}
