// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// DefaultPort is the port of a web process if neither the process nor its image specifies a port.
	DefaultPort = 8080
	// launcher runs a command in an image that buildpacks have built.
	launcher        = "/cnb/lifecycle/launcher"
	millisPerSecond = 1000
)

// LRPSource holds the objects from which an LRP is built.
type LRPSource struct {
	App     *korifiv1alpha1.CFApp
	Process *korifiv1alpha1.CFProcess
	// Droplet is the droplet of the revision, which may differ from the app's current droplet.
	Droplet *korifiv1alpha1.Droplet
	// Settings is the Secret with the settings of the revision.
	Settings *corev1.Secret
	// Surroundings is passed to the app in VCAP_APPLICATION.
	Surroundings Surroundings
}

// Surroundings describes the space and the routes of an app.
type Surroundings struct {
	// SpaceName, OrgGUID and OrgName are empty if they are unknown.
	SpaceName, OrgGUID, OrgName string
	// Addresses are the URIs of the app's routes.
	Addresses []string
}

// BuildLRP returns the LRP for a CreateLRP action.
func BuildLRP(p LRPSource, do CreateLRP) *eiriniv1.LRP {
	ports := p.listenPorts()
	lrp := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Process.Namespace, Name: do.Name, Finalizers: []string{eiriniv1.LRPFinalizer},
			Labels: map[string]string{
				korifiv1alpha1.GUIDLabel: do.Name, korifiv1alpha1.AppGUIDLabel: p.App.Name, korifiv1alpha1.SpaceGUIDLabel: p.Process.Namespace,
				korifiv1alpha1.ProcessGUIDLabel: p.Process.Name, korifiv1alpha1.ProcessTypeLabel: p.Process.Spec.ProcessType,
				korifiv1alpha1.VersionLabel: revision.FormatRevision(do.Revision),
			},
			Annotations:     map[string]string{torporv1alpha1.SettingsAnnotation: p.Settings.Name, torporv1alpha1.AddressesAnnotation: strings.Join(p.Surroundings.Addresses, ",")},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.Process, korifiv1alpha1.CFProcessKind())},
		},
		Spec: eiriniv1.LRPSpec{
			GUID: p.Process.Name, Version: revision.FormatRevision(do.Revision), ProcessType: p.Process.Spec.ProcessType,
			AppName: p.App.Spec.DisplayName, AppGUID: p.App.Name, SpaceGUID: p.Process.Namespace,
			SpaceName: p.Surroundings.SpaceName, OrgGUID: p.Surroundings.OrgGUID, OrgName: p.Surroundings.OrgName,
			Image: p.Droplet.Registry.Image, ImagePullSecrets: p.Droplet.Registry.ImagePullSecrets,
			Command: p.startCommand(), Environment: environmentFrom(p.Settings), Health: p.healthCheck(ports), Ports: ports,
			Instances: do.Instances, MemoryMB: LimitMegabytes(p.Process.Spec.MemoryMB), DiskMB: LimitMegabytes(p.Process.Spec.DiskQuotaMB),
		},
	}
	if name := revision.AppNameLabel(p.App.Spec.DisplayName); name != "" {
		lrp.Labels[torporv1alpha1.AppNameLabel] = name
	}
	return lrp
}

// startCommand returns the command of the container. It returns nil if the image's own command is used.
func (p LRPSource) startCommand() []string {
	command := p.Process.Spec.Command
	for _, t := range p.Droplet.ProcessTypes {
		if t.Type == p.Process.Spec.ProcessType {
			command = cmp.Or(command, t.Command)
		}
	}
	command = cmp.Or(command, p.Process.Spec.DetectedCommand)
	if command == "" {
		return nil
	}
	return WrapCommand(p.App.Spec.Lifecycle.Type, command)
}

// WrapCommand returns the container command that runs a command in an image with the given lifecycle.
func WrapCommand(lifecycle korifiv1alpha1.LifecycleType, command string) []string {
	if lifecycle == korifiv1alpha1.BuildpackLifecycle {
		return []string{launcher, command}
	}
	return []string{"/bin/sh", "-c", command}
}

// listenPorts returns the ports of the process. For a web process without ports, it returns the droplet's ports, or
// else the default port. Other processes without ports do not listen.
func (p LRPSource) listenPorts() []int32 {
	switch {
	case len(p.Process.Spec.Ports) > 0:
		return p.Process.Spec.Ports
	case p.Process.Spec.ProcessType != korifiv1alpha1.WebProcess:
		return nil
	case len(p.Droplet.Ports) > 0:
		return p.Droplet.Ports
	default:
		return []int32{DefaultPort}
	}
}

func (p LRPSource) healthCheck(ports []int32) eiriniv1.Healthcheck {
	check := p.Process.Spec.HealthCheck
	kind := check.Type
	if kind == "" && p.Process.Spec.ProcessType == korifiv1alpha1.WebProcess {
		kind = korifiv1alpha1.PortHealthCheck
	}
	if kind == "" || len(ports) == 0 {
		// Without a port, every other type of check would fail forever.
		kind = korifiv1alpha1.ProcessHealthCheck
	}
	health := eiriniv1.Healthcheck{
		Type: string(kind), TimeoutMs: int64(check.Data.TimeoutSeconds) * millisPerSecond,
		InvocationTimeoutMs: int64(check.Data.InvocationTimeoutSeconds) * millisPerSecond,
	}
	if kind != korifiv1alpha1.ProcessHealthCheck {
		health.Port = ports[0]
	}
	if kind == korifiv1alpha1.HTTPHealthCheck {
		health.Endpoint = check.Data.HTTPEndpoint
	}
	return health
}
