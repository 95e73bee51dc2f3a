// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// PortName is the name of an instance's first port. Services refer to the port by name, because its number may differ
// between revisions.
const PortName = "http"

const (
	// graceSeconds is the time that an instance has to terminate, as in Cloud Foundry.
	graceSeconds = 10
	mebibyte     = 1 << 20
)

// PodOptions holds the platform team's settings for the instances of all apps.
type PodOptions struct {
	// PullPolicy is the image pull policy. With any policy but Always, an instance may run a tag that is already on the
	// node. A user can then run such an image without the right to pull it.
	PullPolicy corev1.PullPolicy
	// StopDelay is the time for which a listening instance continues to serve after it has left its Services, if other
	// instances serve in its place.
	StopDelay time.Duration
}

// BuildStatefulSet returns the StatefulSet that runs an LRP. Its template never changes, because each revision has its
// own LRP. The StatefulSet is only ever scaled, and OnDelete prevents rolling updates.
func BuildStatefulSet(lrp *eiriniv1.LRP, options PodOptions) *appsv1.StatefulSet {
	labels := podLabels(lrp)
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet"},
		ObjectMeta: dependentMeta(lrp, labels),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(wantedInstances(lrp)),
			Selector:            PodSelector(lrp),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: lrp.Spec.UserDefinedAnnotations},
				Spec:       BuildPodSpec(lrp, options),
			},
		},
	}
}

// BuildDisruptionBudget returns a budget that keeps half of an LRP's Pods available while nodes are drained. It returns
// nil for at most one instance, which no budget can keep available.
func BuildDisruptionBudget(lrp *eiriniv1.LRP) *policyv1.PodDisruptionBudget {
	if lrp.Spec.Instances <= 1 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: dependentMeta(lrp, podLabels(lrp)),
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: PodSelector(lrp), MinAvailable: new(intstr.FromString("50%"))},
	}
}

// wantedInstances returns the number of instances that an LRP requests, limited to the range of Torpor's schema.
func wantedInstances(lrp *eiriniv1.LRP) int32 {
	return min(max(lrp.Spec.Instances, 0), korifiv1alpha1.MaxInstances)
}

// PodSelector selects the Pods of one revision of a process.
func PodSelector(lrp *eiriniv1.LRP) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		korifiv1alpha1.ProcessGUIDLabel: lrp.Spec.GUID, korifiv1alpha1.VersionLabel: lrp.Spec.Version,
	}}
}

func dependentMeta(lrp *eiriniv1.LRP, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: lrp.Namespace, Name: revision.StatefulSetName(lrp.Name), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(lrp, eiriniv1.LRPKind())},
	}
}

func podLabels(lrp *eiriniv1.LRP) map[string]string {
	labels := map[string]string{
		korifiv1alpha1.GUIDLabel: lrp.Spec.GUID, korifiv1alpha1.ProcessGUIDLabel: lrp.Spec.GUID, korifiv1alpha1.VersionLabel: lrp.Spec.Version,
	}
	for key, value := range map[string]string{
		korifiv1alpha1.AppGUIDLabel: lrp.Spec.AppGUID, korifiv1alpha1.SpaceGUIDLabel: lrp.Spec.SpaceGUID, korifiv1alpha1.ProcessTypeLabel: lrp.Spec.ProcessType,
		torporv1alpha1.AppNameLabel: revision.AppNameLabel(lrp.Spec.AppName),
	} {
		if value != "" {
			labels[key] = value
		}
	}
	return labels
}

// BuildPodSpec returns the Pod spec of an instance.
func BuildPodSpec(lrp *eiriniv1.LRP, options PodOptions) corev1.PodSpec {
	container := buildContainer(lrp)
	container.ImagePullPolicy = options.PullPolicy
	return corev1.PodSpec{
		Containers:                    []corev1.Container{container},
		ImagePullSecrets:              lrp.Spec.ImagePullSecrets,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(graceSeconds)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			spreadOver(lrp, corev1.LabelTopologyZone), spreadOver(lrp, corev1.LabelHostname),
		},
	}
}

func spreadOver(lrp *eiriniv1.LRP, over string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: over, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: PodSelector(lrp),
	}
}

func buildContainer(lrp *eiriniv1.LRP) corev1.Container {
	c := corev1.Container{
		Name: eiriniv1.ApplicationContainer, Image: lrp.Spec.Image, Command: lrp.Spec.Command, Env: buildEnvironment(lrp), Resources: buildResources(lrp),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	c.StartupProbe, c.LivenessProbe = buildProbes(lrp.Spec.Health)
	for i, port := range lrp.Spec.Ports {
		named := corev1.ContainerPort{ContainerPort: port}
		if i == 0 {
			named.Name = PortName
		}
		c.Ports = append(c.Ports, named)
	}
	return c
}

func buildResources(lrp *eiriniv1.LRP) corev1.ResourceRequirements {
	quantity := func(megabytes int64) resource.Quantity {
		// Above 2^43 MiB, the product would overflow. A quantity of 0 would mean no limit.
		return *resource.NewQuantity(min(megabytes, korifiv1alpha1.MaxMegabytes)*mebibyte, resource.BinarySI)
	}
	limits := corev1.ResourceList{corev1.ResourceEphemeralStorage: quantity(max(lrp.Spec.DiskMB, 1))}
	if lrp.Spec.MemoryMB > 0 {
		limits[corev1.ResourceMemory] = quantity(lrp.Spec.MemoryMB)
	}
	// Memory and disk requests equal the limits, so no instance is evicted for using as much as its limits.
	requests := maps.Clone(limits)
	cpu := int64(lrp.Spec.CPUWeight)
	if cpu == 0 {
		cpu = DefaultCPURequest(lrp.Spec.MemoryMB)
	}
	if cpu > 0 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
	}
	return corev1.ResourceRequirements{Limits: limits, Requests: requests}
}

// DefaultCPURequest returns the CPU request of an instance with the given memory, in millicores. As in Korifi, it is
// 100 per GiB and at least 5. Without memory it is 0.
func DefaultCPURequest(memoryMB int64) int64 {
	const perGibibyte, least, mebibytes = 100, 5, 1024
	if memoryMB <= 0 {
		return 0
	}
	return max(least, min(memoryMB, korifiv1alpha1.MaxMegabytes)*perGibibyte/mebibytes)
}

// buildEnvironment returns the variables sorted by name and without duplicates. Torpor's own variables override the
// app's variables, and Environment overrides Env.
func buildEnvironment(lrp *eiriniv1.LRP) []corev1.EnvVar {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	byName := map[string]corev1.EnvVar{}
	for name, value := range lrp.Spec.Env {
		byName[name] = corev1.EnvVar{Name: name, Value: value}
	}
	for _, e := range slices.Concat(lrp.Spec.Environment, applicationEnvironment(lrp), []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: field("metadata.name")},
		{Name: "CF_INSTANCE_GUID", ValueFrom: field("metadata.uid")},
		{Name: "CF_INSTANCE_INDEX", ValueFrom: field("metadata.labels['" + appsv1.PodIndexLabel + "']")},
		{Name: "CF_INSTANCE_IP", ValueFrom: field("status.hostIP")},
		{Name: "CF_INSTANCE_INTERNAL_IP", ValueFrom: field("status.podIP")},
	}) {
		byName[e.Name] = e
	}
	var all []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}

// applicationEnvironment returns the variables that describe the app. PORT is omitted for a process that does not
// listen.
func applicationEnvironment(lrp *eiriniv1.LRP) []corev1.EnvVar {
	var all []corev1.EnvVar
	if len(lrp.Spec.Ports) > 0 {
		port := strconv.Itoa(int(lrp.Spec.Ports[0]))
		all = append(all, corev1.EnvVar{Name: "PORT", Value: port}, corev1.EnvVar{Name: "VCAP_APP_PORT", Value: port})
	}
	if lrp.Spec.AppGUID == "" {
		return all
	}
	if lrp.Spec.MemoryMB > 0 {
		all = append(all, corev1.EnvVar{Name: "MEMORY_LIMIT", Value: strconv.FormatInt(lrp.Spec.MemoryMB, 10) + "M"})
	}
	application := ApplicationInfo{
		GUID: lrp.Spec.AppGUID, Name: lrp.Spec.AppName, Revision: lrp.Spec.Version, SpaceGUID: lrp.Spec.SpaceGUID, SpaceName: lrp.Spec.SpaceName,
		OrgGUID: lrp.Spec.OrgGUID, OrgName: lrp.Spec.OrgName, MemoryMB: lrp.Spec.MemoryMB, DiskMB: lrp.Spec.DiskMB,
		Addresses: strings.FieldsFunc(lrp.Annotations[torporv1alpha1.AddressesAnnotation], func(r rune) bool { return r == ',' }),
	}.VCAPApplication()
	application["process_id"], application["process_type"] = lrp.Spec.GUID, lrp.Spec.ProcessType
	text, err := json.Marshal(application)
	if err != nil { // Strings and numbers can always be encoded.
		return all
	}
	return append(all, corev1.EnvVar{Name: "VCAP_APPLICATION", Value: string(text)})
}

// ApplicationInfo holds the content of VCAP_APPLICATION.
type ApplicationInfo struct {
	GUID, Name, Revision                   string
	SpaceGUID, SpaceName, OrgGUID, OrgName string
	// MemoryMB and DiskMB are the limits of the process.
	MemoryMB, DiskMB int64
	// Addresses are the URIs of the app's routes.
	Addresses []string
}

// VCAPApplication returns the value of VCAP_APPLICATION. It omits an unknown space name and org.
func (a ApplicationInfo) VCAPApplication() map[string]any {
	addresses := append([]string{}, a.Addresses...)
	all := map[string]any{
		"application_id": a.GUID, "application_name": a.Name, "name": a.Name, "application_version": a.Revision, "version": a.Revision,
		"space_id": a.SpaceGUID, "application_uris": addresses, "uris": addresses, "limits": map[string]int64{"mem": a.MemoryMB, "disk": a.DiskMB},
	}
	for key, value := range map[string]string{"space_name": a.SpaceName, "organization_id": a.OrgGUID, "organization_name": a.OrgName} {
		if value != "" {
			all[key] = value
		}
	}
	return all
}
