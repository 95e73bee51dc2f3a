// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"cmp"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

const (
	// defaultPort is where a web process listens whose image does not say.
	defaultPort = 8080
	// launcher starts a command in an image that buildpacks have made.
	launcher     = "/cnb/lifecycle/launcher"
	milliseconds = 1000
)

// Parts are what an LRP is made from.
type Parts struct {
	App     *korifiv1alpha1.CFApp
	Process *korifiv1alpha1.CFProcess
	// Droplet is that of the revision, not necessarily the app's current one.
	Droplet *korifiv1alpha1.Droplet
	// Environment is the app's.
	Environment []corev1.EnvVar
}

// BuildLRP is the LRP that an action wants.
func BuildLRP(p Parts, do CreateLRP) *eiriniv1.LRP {
	ports := p.ports()
	lrp := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Process.Namespace, Name: do.Name, Finalizers: []string{eiriniv1.LRPFinalizer},
			Labels: map[string]string{
				korifiv1alpha1.GUIDLabel: do.Name, korifiv1alpha1.AppGUIDLabel: p.App.Name, korifiv1alpha1.SpaceGUIDLabel: p.Process.Namespace,
				korifiv1alpha1.ProcessGUIDLabel: p.Process.Name, korifiv1alpha1.ProcessTypeLabel: p.Process.Spec.ProcessType,
				korifiv1alpha1.VersionLabel: FormatRevision(do.Revision),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.Process, korifiv1alpha1.CFProcessKind())},
		},
		Spec: eiriniv1.LRPSpec{
			GUID: p.Process.Name, Version: FormatRevision(do.Revision), ProcessType: p.Process.Spec.ProcessType,
			AppName: p.App.Spec.DisplayName, AppGUID: p.App.Name, SpaceGUID: p.Process.Namespace,
			Image: p.Droplet.Registry.Image, ImagePullSecrets: p.Droplet.Registry.ImagePullSecrets,
			Command: p.command(), Env: p.platform(do.Revision), Environment: p.Environment, Health: p.health(ports), Ports: ports,
			Instances: do.Instances, MemoryMB: p.Process.Spec.MemoryMB, DiskMB: p.Process.Spec.DiskQuotaMB,
		},
	}
	return lrp
}

// platform is what Cloud Foundry tells every instance of its app.
func (p Parts) platform(revision int64) map[string]string {
	application := Application(p.App, revision)
	application["process_id"], application["process_type"] = p.Process.Name, p.Process.Spec.ProcessType
	application["limits"] = map[string]int64{"mem": p.Process.Spec.MemoryMB, "disk": p.Process.Spec.DiskQuotaMB}
	text, err := json.Marshal(application)
	if err != nil { // Strings and numbers can always be written.
		return nil
	}
	env := map[string]string{"VCAP_APPLICATION": string(text)}
	if p.Process.Spec.MemoryMB > 0 {
		env["MEMORY_LIMIT"] = strconv.FormatInt(p.Process.Spec.MemoryMB, 10) + "M"
	}
	return env
}

// Application is what VCAP_APPLICATION says of an app at a revision; its routes are made by others.
func Application(app *korifiv1alpha1.CFApp, revision int64) map[string]any {
	return map[string]any{
		"application_id": app.Name, "application_name": app.Spec.DisplayName, "name": app.Spec.DisplayName,
		"application_version": FormatRevision(revision), "version": FormatRevision(revision), "space_id": app.Namespace,
		"application_uris": []string{}, "uris": []string{},
	}
}

// command is empty where the image's own is run.
func (p Parts) command() []string {
	command := p.Process.Spec.Command
	for _, t := range p.Droplet.ProcessTypes {
		if t.Type == p.Process.Spec.ProcessType {
			command = cmp.Or(command, t.Command)
		}
	}
	command = cmp.Or(command, p.Process.Spec.DetectedCommand)
	switch {
	case command == "":
		return nil
	case p.App.Spec.Lifecycle.Type == korifiv1alpha1.BuildpackLifecycle:
		return []string{launcher, command}
	default:
		return []string{"/bin/sh", "-c", command}
	}
}

// ports are those of the process, or of its droplet, or a web process's usual one.
func (p Parts) ports() []int32 {
	switch {
	case len(p.Process.Spec.Ports) > 0:
		return p.Process.Spec.Ports
	case p.Process.Spec.ProcessType != korifiv1alpha1.WebProcess:
		return nil
	case len(p.Droplet.Ports) > 0:
		return p.Droplet.Ports
	default:
		return []int32{defaultPort}
	}
}

func (p Parts) health(ports []int32) eiriniv1.Healthcheck {
	check := p.Process.Spec.HealthCheck
	kind := check.Type
	if kind == "" && p.Process.Spec.ProcessType == korifiv1alpha1.WebProcess {
		kind = korifiv1alpha1.PortHealthCheck
	}
	if kind == "" || len(ports) == 0 {
		kind = korifiv1alpha1.ProcessHealthCheck
	}
	health := eiriniv1.Healthcheck{
		Type: string(kind), TimeoutMs: int64(check.Data.TimeoutSeconds) * milliseconds,
		InvocationTimeoutMs: int64(check.Data.InvocationTimeoutSeconds) * milliseconds,
	}
	if kind != korifiv1alpha1.ProcessHealthCheck {
		health.Port = ports[0]
	}
	if kind == korifiv1alpha1.HTTPHealthCheck {
		health.Endpoint = check.Data.HTTPEndpoint
	}
	return health
}
