// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"cmp"
	_ "embed" // The scripts are embedded.
	"fmt"
	"maps"
	"slices"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

const (
	// configVolume contains my.cnf and the scripts.
	configVolume = "mysql-conf"
	// exporterVolume contains only the file with the exporter's password.
	exporterVolume, exporterFolder = "moco-exporter", "/moco-exporter"
	exporterPort                   = 9104
	// usersVolume contains usersFile. Only the init container mounts it.
	usersVolume, usersFolder = "moco-users", "/moco-users"
	// takeOverVolume contains takeOverFile. It is mounted only by servers of a cluster that copies another server.
	takeOverVolume, takeOverFolder = "moco-take-over", "/moco-take-over"
	// gracePeriodSeconds is how long a server may take to shut down.
	gracePeriodSeconds = 300
	// logFolder contains the slow log and the general log.
	logFolder = "/var/log/mysql"
	// preStopSeconds is how long a deleted Pod continues to serve, so a primary can be switched over.
	preStopSeconds = 10
	// defaultLogSize is the size in bytes at which a log is rotated.
	defaultLogSize = 64 << 20
	// serverUser is the user ID that runs the server and owns its data.
	serverUser = 10000
)

// buildPodSpec returns the user's Pod spec with the containers, volumes and defaults that an instance needs.
func buildPodSpec(c *mocov1beta2.MySQLCluster, config, exporterImage string) (map[string]any, error) {
	raw, err := c.Spec.PodTemplate.Spec.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode spec.podTemplate.spec: %w", err)
	}
	spec := map[string]any{}
	if err := utiljson.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("decode spec.podTemplate.spec: %w", err)
	}
	containers, _ := spec["containers"].([]any)
	at := slices.IndexFunc(containers, isContainerNamed(mocov1beta2.MysqldContainer))
	if at < 0 {
		return nil, fmt.Errorf("spec.podTemplate.spec: expected a container called %s, found none; add it", mocov1beta2.MysqldContainer)
	}
	server := containers[at].(map[string]any) // isContainerNamed has verified the type.
	overwrite, err := containerOverwrites(c, mocov1beta2.InitContainer)
	if err != nil {
		return nil, err
	}
	first := buildInitContainer(c, server, overwrite)
	sidecars, err := buildSidecars(c, server, exporterImage)
	if err != nil {
		return nil, err
	}
	completeServerContainer(c, server)
	spec["containers"] = slices.Concat(containers, sidecars)
	inits, _ := spec["initContainers"].([]any)
	spec["initContainers"] = slices.Concat([]any{first}, inits)
	volumes, _ := spec["volumes"].([]any)
	spec["volumes"] = slices.Concat(volumes, podVolumes(c, config))
	setMissing(spec, map[string]any{
		"serviceAccountName": c.ChildName(), "terminationGracePeriodSeconds": int64(gracePeriodSeconds), "affinity": preferSeparateNodes(c),
		"topologySpreadConstraints": preferSeparateZones(c),
		"securityContext": map[string]any{
			"runAsNonRoot": true, "runAsUser": int64(serverUser), "runAsGroup": int64(serverUser), "fsGroup": int64(serverUser),
			"fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
	})
	return spec, nil
}

// buildInitContainer returns the container that creates the data directory, with the server's image, resources and
// environment.
func buildInitContainer(cluster *mocov1beta2.MySQLCluster, server, overwrite map[string]any) map[string]any {
	c := map[string]any{
		"name": mocov1beta2.InitContainer, "image": server["image"], "command": []any{"/bin/sh", configFolder + "/" + initFile},
		"volumeMounts": append(sharedMounts(), volumeMount(usersVolume, usersFolder)),
	}
	for _, like := range []string{"imagePullPolicy", "resources", "securityContext", "env", "envFrom"} {
		if said, ok := server[like]; ok {
			c[like] = said
		}
	}
	if cluster.Spec.InitializeTimezoneData {
		env, _ := c["env"].([]any)
		c["env"] = slices.Concat(env, []any{map[string]any{"name": "MOCO_ZONEINFO", "value": "/usr/share/zoneinfo"}})
	}
	maps.Copy(c, overwrite)
	setMissing(c, map[string]any{"securityContext": restrictedSecurityContext()})
	return c
}

// buildSidecars returns the containers that run in addition to the server.
func buildSidecars(c *mocov1beta2.MySQLCluster, server map[string]any, exporterImage string) ([]any, error) {
	var sidecars []any
	if !c.Spec.DisableSlowQueryLogContainer {
		overwrite, err := containerOverwrites(c, mocov1beta2.SlowLogContainer)
		if err != nil {
			return nil, err
		}
		sidecars = append(sidecars, buildSlowLogContainer(server, overwrite))
	}
	if len(c.Spec.Collectors) > 0 {
		exporter, err := buildExporterContainer(c, exporterImage)
		if err != nil {
			return nil, err
		}
		sidecars = append(sidecars, exporter)
	}
	return sidecars, nil
}

// buildSlowLogContainer returns the container that prints the slow log. It uses the server's image, which has the right
// user and is already on the node. Its requests equal its limits, so a Pod can have the QoS class Guaranteed.
func buildSlowLogContainer(server, overwrite map[string]any) map[string]any {
	logs := volumeMount("var-log", logFolder)
	logs["readOnly"] = true
	size := map[string]any{"cpu": "100m", "memory": "20Mi"}
	c := map[string]any{
		"name": mocov1beta2.SlowLogContainer, "image": server["image"], "command": []any{"/bin/sh", configFolder + "/" + slowLogFile},
		"resources": map[string]any{"requests": size, "limits": maps.Clone(size)}, "volumeMounts": []any{logs, volumeMount(configVolume, configFolder)},
	}
	for _, like := range []string{"imagePullPolicy", "securityContext"} {
		if said, ok := server[like]; ok {
			c[like] = said
		}
	}
	maps.Copy(c, overwrite)
	setMissing(c, map[string]any{"securityContext": restrictedSecurityContext()})
	return c
}

// buildExporterContainer returns the container that queries the server for metrics. Its account has no privileges other
// than those needed for metrics, and the container has no other password.
func buildExporterContainer(c *mocov1beta2.MySQLCluster, image string) (map[string]any, error) {
	// The second flag makes the exporter use TLS, as require_secure_transport requires. The connection stays inside the
	// Pod, so the certificate is not verified.
	args := []any{"--config.my-cnf=" + exporterFolder + "/" + mysqlusers.ClientFileOf(mysqlusers.ExporterUser), "--tls.insecure-skip-verify"}
	for _, name := range c.Spec.Collectors {
		args = append(args, "--collect."+name)
	}
	container := map[string]any{
		"name": mocov1beta2.ExporterContainer, "image": image, "args": args,
		"ports": []any{containerPort("mysqld-metrics", exporterPort)}, "volumeMounts": []any{volumeMount(exporterVolume, exporterFolder)},
	}
	overwrite, err := containerOverwrites(c, mocov1beta2.ExporterContainer)
	if err != nil {
		return nil, err
	}
	maps.Copy(container, overwrite)
	setMissing(container, map[string]any{"securityContext": restrictedSecurityContext()})
	return container, nil
}

// containerOverwrites returns the user's overrides for a container that Torpor adds.
func containerOverwrites(c *mocov1beta2.MySQLCluster, name string) (map[string]any, error) {
	out := map[string]any{}
	for _, o := range c.Spec.PodTemplate.OverwriteContainers {
		for key, kept := range map[string]*mocov1beta2.Kept{"resources": o.Resources, "securityContext": o.SecurityContext} {
			if o.Name != name || kept == nil {
				continue
			}
			var said map[string]any
			if err := utiljson.Unmarshal(kept.Raw, &said); err != nil {
				return nil, fmt.Errorf("decode spec.podTemplate.overwriteContainers: %w", err)
			}
			out[key] = said
		}
	}
	return out, nil
}

// completeServerContainer makes the user's container run the server under serverScript. It keeps the user's arguments.
func completeServerContainer(c *mocov1beta2.MySQLCluster, server map[string]any) {
	server["command"] = []any{"/bin/sh", configFolder + "/" + serverFile}
	env, _ := server["env"].([]any)
	env = slices.Concat(env, []any{
		envFromField("MOCO_POD_NAME", "metadata.name"), envFromField("MOCO_POD_IP", "status.podIP"),
		map[string]any{"name": "MOCO_SUBDOMAIN", "value": fmt.Sprintf("%s.%s.svc", c.ChildName(), c.Namespace)},
		map[string]any{"name": "MOCO_SERVER_ID_BASE", "value": fmt.Sprint(c.Spec.ServerIDBase)},
		map[string]any{"name": "MOCO_LOG_SIZE", "value": fmt.Sprint(cmp.Or(c.Spec.LogRotationSize, defaultLogSize))},
	})
	var takeOver []any
	if c.Spec.SourceSecretName() != "" {
		env = append(env, map[string]any{"name": "MOCO_ACCOUNTS", "value": takeOverFolder + "/" + takeOverFile})
		takeOver = []any{volumeMount(takeOverVolume, takeOverFolder)}
	}
	server["env"] = env
	ports, _ := server["ports"].([]any)
	server["ports"] = slices.Concat(ports, []any{
		containerPort("mysql", mysqlPort), containerPort("mysqlx", mysqlxPort), containerPort("mysql-admin", adminPort),
	})
	volumeMounts, _ := server["volumeMounts"].([]any)
	server["volumeMounts"] = slices.Concat(volumeMounts, sharedMounts(), []any{volumeMount("my-cnf-secret", "/mysql-credentials")}, takeOver)
	setMissing(server, map[string]any{
		"securityContext": restrictedSecurityContext(),
		"lifecycle":       map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": int64(preStopSeconds)}}},
	})
	for name, p := range defaultProbes(c.StartupWait()) {
		said, _ := server[name].(map[string]any)
		question := "alive"
		if name == "readinessProbe" {
			question = "ready"
		}
		server[name] = mergeProbe(said, p, question)
	}
}

// defaultProbes returns the periods, thresholds and timeouts of probes that query the server itself. A probe starts a
// program in a container, which takes seconds on a busy node, so timeouts are long and probes infrequent. A Pod stays
// ready during a fence of a few seconds. A hanging server does not react to SIGTERM either. It is restarted after at
// most seven probes of ten seconds and the grace period.
func defaultProbes(startupWait time.Duration) map[string]map[string]any {
	const startupPeriod = 2 * time.Second
	return map[string]map[string]any{
		"startupProbe":   {"periodSeconds": int64(startupPeriod / time.Second), "failureThreshold": int64(startupWait / startupPeriod), "timeoutSeconds": int64(5)},
		"readinessProbe": {"periodSeconds": int64(5), "failureThreshold": int64(3), "timeoutSeconds": int64(5)},
		"livenessProbe":  {"periodSeconds": int64(10), "failureThreshold": int64(6), "timeoutSeconds": int64(10), "terminationGracePeriodSeconds": int64(30)},
	}
}

// mergeProbe returns the user's probe. Missing numbers and a missing handler get the defaults.
func mergeProbe(said, numbers map[string]any, question string) map[string]any {
	out := maps.Clone(numbers)
	maps.Copy(out, said)
	for _, way := range []string{"exec", "httpGet", "grpc", "tcpSocket"} {
		if out[way] != nil {
			return out
		}
	}
	out["exec"] = map[string]any{"command": []any{"/bin/sh", configFolder + "/" + probeFile, question}}
	return out
}

// sharedMounts returns the mounts of both the server and the init container.
func sharedMounts() []any {
	return []any{
		volumeMount(mocov1beta2.DataClaim, "/var/lib/mysql"), volumeMount("tmp", "/tmp"), volumeMount("run", "/run"),
		volumeMount("var-log", logFolder), volumeMount(configVolume, configFolder), volumeMount(mocov1beta2.TLSVolume, tlsFolder),
	}
}

func podVolumes(c *mocov1beta2.MySQLCluster, config string) []any {
	var clients []any
	for _, a := range mysqlusers.ListAccounts() {
		clients = append(clients, map[string]any{"key": mysqlusers.ClientFileOf(a.Name), "path": mysqlusers.ClientFileOf(a.Name)})
	}
	var files []any // These files do not include the CA's key.
	for _, name := range []string{certificates.AuthorityFile, certificates.CertificateFile, certificates.KeyFile} {
		files = append(files, map[string]any{"key": name, "path": name})
	}
	volumes := []any{
		map[string]any{"name": "tmp", "emptyDir": map[string]any{}},
		map[string]any{"name": "run", "emptyDir": map[string]any{}},
		map[string]any{"name": "var-log", "emptyDir": map[string]any{}},
		map[string]any{"name": configVolume, "configMap": map[string]any{"name": config}},
		secretVolume("my-cnf-secret", c.ClientSecretName(), clients),
		secretVolume(mocov1beta2.TLSVolume, c.TLSSecretName(), files),
		secretVolume(usersVolume, c.ClientSecretName(), []any{map[string]any{"key": usersFile, "path": usersFile}}),
	}
	if c.Spec.SourceSecretName() != "" {
		volumes = append(volumes, secretVolume(takeOverVolume, c.ClientSecretName(), []any{map[string]any{"key": takeOverFile, "path": takeOverFile}}))
	}
	if len(c.Spec.Collectors) > 0 {
		file := mysqlusers.ClientFileOf(mysqlusers.ExporterUser)
		volumes = append(volumes, secretVolume(exporterVolume, c.ClientSecretName(), []any{map[string]any{"key": file, "path": file}}))
	}
	return volumes
}

func secretVolume(name, secret string, items []any) map[string]any {
	return map[string]any{"name": name, "secret": map[string]any{"secretName": secret, "items": items}}
}

func preferSeparateNodes(c *mocov1beta2.MySQLCluster) map[string]any {
	const most = 100
	return map[string]any{"podAntiAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		map[string]any{"weight": int64(most), "podAffinityTerm": map[string]any{
			"labelSelector": map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))}, "topologyKey": "kubernetes.io/hostname",
		}},
	}}}
}

func preferSeparateZones(c *mocov1beta2.MySQLCluster) []any {
	return []any{map[string]any{
		"maxSkew": int64(1), "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
		"labelSelector": map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))},
	}}
}

func restrictedSecurityContext() map[string]any {
	return map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}
}

func volumeMount(name, path string) map[string]any {
	return map[string]any{"name": name, "mountPath": path}
}

func containerPort(name string, number int64) map[string]any {
	return map[string]any{"name": name, "containerPort": number, "protocol": "TCP"}
}

func envFromField(name, path string) map[string]any {
	return map[string]any{"name": name, "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": path}}}
}

func setMissing(in, defaults map[string]any) {
	for key, value := range defaults {
		if in[key] == nil {
			in[key] = value
		}
	}
}

func isContainerNamed(name string) func(any) bool {
	return func(one any) bool {
		c, ok := one.(map[string]any)
		return ok && c["name"] == name
	}
}

// initScript creates the data directory of a new instance.
//
//go:embed moco-init.sh
var initScript string

// serverScript runs the server and restarts it after a CLONE.
//
//go:embed moco-mysqld.sh
var serverScript string

// probeScript is the script of the kubelet's probes.
//
//go:embed moco-probe.sh
var probeScript string

// slowLogScript prints the slow log.
//
//go:embed moco-slow-log.sh
var slowLogScript string
