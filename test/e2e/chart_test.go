// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/config"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const chart = "../../charts/torpor"

// TestChartAcceptsPlacementAndPullSecrets renders the values for a private registry and dedicated nodes.
func TestChartAcceptsPlacementAndPullSecrets(t *testing.T) {
	helm := testenv.HelmPath(t)
	render := func(args ...string) (string, error) {
		args = append([]string{"template", "torpor", chart, "--kube-version", "1.36.0", "--show-only", "templates/deployment.yaml"}, args...)
		out, err := exec.CommandContext(t.Context(), helm, args...).Output()
		if failed, isExit := errors.AsType[*exec.ExitError](err); isExit {
			return string(failed.Stderr), err
		}
		return string(out), err
	}
	out, err := render("--set", "image.repository=registry.example/torpor", "--set", "imagePullSecrets[0].name=registry",
		"--set", "nodeSelector.pool=system", "--set", "tolerations[0].key=dedicated,tolerations[0].operator=Exists",
		"--set-json", `affinity={"nodeAffinity":{}}`, "--set-json", `topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"zone"}]`,
		"--set", "priorityClassName=system-cluster-critical", "--set", "annotations.team=platform", "--set", "labels.tier=infra",
		"--set", "podAnnotations.scrape=yes", "--set", "podLabels.cost=shared,podLabels.app\\.kubernetes\\.io/name=other")
	if err != nil {
		t.Fatal(err, out)
	}
	var d, plain appsv1.Deployment
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte(out), &d))
	out, err = render("--set", "image.repository=registry.example/torpor")
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte(out), &plain))
	pod := d.Spec.Template
	testenv.ExpectEqual(t, "pull secrets", []corev1.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets)
	testenv.ExpectEqual(t, "node selector", map[string]string{"pool": "system"}, pod.Spec.NodeSelector)
	testenv.ExpectEqual(t, "tolerations", []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, pod.Spec.Tolerations)
	testenv.ExpectEqual(t, "spread", []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone"}}, pod.Spec.TopologySpreadConstraints)
	testenv.ExpectEqual(t, "priority", "system-cluster-critical", pod.Spec.PriorityClassName)
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		t.Errorf("expected the affinity of the values, found %v", pod.Spec.Affinity)
	}
	for text, found := range map[string]string{
		"platform": d.Annotations["team"], "infra": d.Labels["tier"], "yes": pod.Annotations["scrape"], "shared": pod.Labels["cost"],
	} {
		testenv.ExpectEqual(t, "metadata", text, found)
	}
	for key, value := range plain.Spec.Selector.MatchLabels {
		testenv.ExpectEqual(t, "label "+key+" of the selector", value, pod.Labels[key])
	}
	if out, err = render(); err == nil || !strings.Contains(out, "image.repository: expected the repository of Torpor's image, found none") {
		t.Errorf("expected an error that names image.repository, found %v: %s", err, out)
	}
	for _, misspelled := range []string{
		"nodeSelectors.pool=system", "tolerations[0].kee=dedicated", "affinity.nodeAffinty.a=b",
		"affinity.podAntiAffinity.requiredDuringScheduling[0].topologyKey=zone", "topologySpreadConstraints[0].topologykey=zone",
	} {
		if _, err = render("--set", "image.repository=torpor", "--set", misspelled); err == nil {
			t.Errorf("%s: expected an error about the misspelled value, found none", misspelled)
		}
	}
	// The schema of the chart's values must contain each field of these Kubernetes types.
	for path, of := range map[string]any{
		"tolerations[0]": corev1.Toleration{}, "affinity": corev1.Affinity{}, "affinity.nodeAffinity": corev1.NodeAffinity{}, "affinity.podAffinity": corev1.PodAffinity{},
		"affinity.podAntiAffinity": corev1.PodAntiAffinity{}, "topologySpreadConstraints[0]": corev1.TopologySpreadConstraint{},
	} {
		for field := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if out, err = render("--set", "image.repository=torpor", "--set-json", path+"."+name+"={}"); err != nil {
				t.Errorf("%s.%s: expected no error, found %s", path, name, out)
			}
		}
	}
}

// TestChartRendersDeployments renders several Deployments of the manager, each with its own controllers or namespaces.
func TestChartRendersDeployments(t *testing.T) {
	t.Parallel()
	helm := testenv.HelmPath(t)
	render := func(values string) (string, error) {
		out, err := exec.CommandContext(t.Context(), helm, "template", "torpor", chart, "--kube-version", "1.36.0", "--set", "image.repository=torpor,features={cf,hibernation},page.enabled=true", "--set-json", "deployments="+values).Output()
		if failed, isExit := errors.AsType[*exec.ExitError](err); isExit {
			return string(failed.Stderr), err
		}
		return string(out), err
	}
	out, err := render(`{"apps":{"controllers":["restart","spaces"],"replicas":3,"resources":{"limits":{"memory":"4Gi"}},"extraArgs":["--isolate-spaces"]},"one":{"controllers":["sync"],"watchNamespaces":["a","b"]}}`)
	if err != nil {
		t.Fatal(err, out)
	}
	found := map[string]string{}
	for in := yaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096); ; {
		var u unstructured.Unstructured
		err := in.Decode(&u)
		if errors.Is(err, io.EOF) {
			break
		}
		testenv.ExpectNoError(t, err)
		key := u.GetKind() + " " + u.GetName()
		switch u.GetKind() {
		case "PodDisruptionBudget":
			selector, _, err := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
			testenv.ExpectNoError(t, err)
			found[key] = selector["torpor.dev/deployment"]
		case "Deployment":
			var d appsv1.Deployment
			testenv.ExpectNoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d))
			pod := d.Spec.Template
			testenv.ExpectEqual(t, key+": selector and labels", d.Spec.Selector.MatchLabels, pod.Labels)
			own := slices.DeleteFunc(pod.Spec.Containers[0].Args, func(arg string) bool {
				return strings.HasPrefix(arg, "--namespace=") || slices.Contains([]string{"manager", "--leader-elect", "--metrics-address=:8080", "--probe-address=:8081", "--webhook-address=:9443"}, arg)
			})
			found[key] = fmt.Sprintf("%s %d %s %s", pod.Labels["torpor.dev/deployment"], *d.Spec.Replicas, pod.Spec.Containers[0].Resources.Limits.Memory(), strings.Join(own, " "))
		}
	}
	testenv.ExpectEqual(t, "Deployments and budgets", map[string]string{
		"Deployment torpor-manager-apps":          "apps 3 4Gi --controllers=restart --controllers=spaces --page-prices-dir=/page-prices --page-address=127.0.0.1:8088 --isolate-spaces",
		"Deployment torpor-manager-one":           "one 2 512Mi --controllers=sync --watch-namespaces=a --watch-namespaces=b",
		"PodDisruptionBudget torpor-manager-apps": "apps", "PodDisruptionBudget torpor-manager-one": "one",
	}, found)
	for values, words := range map[string]string{
		`{"apps":{"controllers":["slumber"]}}`:       "deployments.apps.controllers: expected controllers of the features that are not disabled, found slumber",
		`{"apps":{"controllers":["slumbers"]}}`:      "slumber",
		`{"Apps":{}}`:                                "Apps",
		`{"apps":{"watchNamespace":["a"]}}`:          "watchNamespace",
		`{"apps":{"extraArgs":["--controllers=a"]}}`: "extraArgs",
	} {
		if out, err := render(values); err == nil || !strings.Contains(out, words) {
			t.Errorf("%s: expected an error with %q, found %v: %s", values, words, err, out)
		}
	}
}

// TestChart renders the chart for each choice of features and has a real API server check every object.
func TestChart(t *testing.T) {
	helm := testenv.HelmPath(t)
	if out, err := exec.CommandContext(t.Context(), helm, "lint", "--strict", chart).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
	hibernation, mysql, cf := []string{"hibernation", "sync", "machinepools"}, []string{"clustering", "provisioning", "backup"}, []string{"restart", "spaces", "deployments", "routes", "tasks", "lrp"}
	for features, controllers := range map[string][]string{
		"hibernation": hibernation, "mysql": mysql, "cf": cf, "slumber": {"slumber"}, "workloads": {"workloads", "adapters"}, "hibernation,mysql,cf,slumber,workloads": slices.Concat(hibernation, mysql, cf, []string{"slumber", "workloads", "adapters"}),
	} {
		t.Run(features, func(t *testing.T) {
			repository := ""
			if features == "cf" {
				repository = "registry.example.com/droplets"
			}
			out, err := exec.CommandContext(t.Context(), helm, "template", "torpor", chart, "--set", "image.repository=torpor", "--kube-version", "1.36.0", "--namespace", "elsewhere", "--set", "features={"+features+"}", "--set", "networkPolicyEgress=true", "--set", "page.enabled=true", "--set", "page.tlsSecret=torpor-page-tls", "--set", "kpack.repository="+repository).Output()
			if err != nil {
				t.Fatal(err, string(out))
			}
			for _, policy := range []string{"torpor-manager", "torpor-egress", "torpor-page"} {
				if !strings.Contains(string(out), "kind: NetworkPolicy\nmetadata:\n  name: "+policy+"\n") {
					t.Errorf("expected the NetworkPolicy %s, found none", policy)
				}
			}
			for _, feature := range []string{"hibernation", "mysql"} {
				policy := "kind: MutatingAdmissionPolicy\nmetadata:\n  name: torpor-" + feature + "-record\n"
				if wanted, found := strings.Contains(features, feature), strings.Contains(string(out), policy); wanted != found {
					t.Errorf("expected the policy that records requesters of %s: %t, found: %t", feature, wanted, found)
				}
			}
			roles := map[string][]rbacv1.PolicyRule{}
			in := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(out)), 4096)
			for {
				var u unstructured.Unstructured
				if err := in.Decode(&u); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if len(u.Object) == 0 {
					continue
				}
				if u.GetNamespace() == "torpor-system" {
					t.Errorf("expected the namespace of the release, found torpor-system in %s %s", u.GetKind(), u.GetName())
				}
				if u.GetKind() == "ClusterRole" {
					roles[u.GetName()] = rulesOf(t, u.Object)
				}
				if err := hub.Client.Create(t.Context(), &u, client.DryRunAll); err != nil {
					t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
			if repository != "" {
				controllers = append(slices.Clone(controllers), "kpack")
			}
			for _, name := range controllers {
				data, err := config.ReadRole(name)
				if err != nil {
					t.Fatal(err)
				}
				var role map[string]any
				if err := yaml.Unmarshal(data, &role); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(rulesOf(t, role), roles["torpor-"+name]); diff != "" {
					t.Errorf("rights of %s (-generated +chart):\n%s", name, diff)
				}
				delete(roles, "torpor-"+name)
				if name == "slumber" {
					delete(roles, "torpor-clusterslumber-editor") // This role is not for the manager, but for users.
				}
				flag := "--controllers=" + name
				if name == "kpack" {
					flag = "--kpack-repository=" + repository
				}
				if !strings.Contains(string(out), flag+"\n") {
					t.Errorf("expected %s to be enabled, found it is not", name)
				}
			}
			for _, common := range []string{"torpor-manager", "torpor-metrics-reader", "torpor-admission", "torpor-stopadapters", "torpor-switch-viewer", "torpor-switch-operator", "torpor-own-kinds-viewer", "torpor-own-kinds-operator"} {
				delete(roles, common)
			}
			if len(roles) != 0 {
				t.Errorf("expected no rights of features that are left off, found %v", roles)
			}
		})
	}
	for values, want := range map[string]string{"features={hibernate}": "features", "features=null": "features", "replica=3": "replica", "extraArgs={--rollout-at-once=4}": "extraArgs", "extraArgs={--namespace=x}": "extraArgs", "features={mysql},kpack.repository=r": "kpack.repository: expected the feature cf"} {
		out, err := exec.CommandContext(t.Context(), helm, "template", chart, "--set", "image.repository=torpor", "--kube-version", "1.36.0", "--set", values).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: expected an error about %s, found %v: %s", values, want, err, out)
		}
	}
}

// TestChartPassesEveryFlag has the program itself validate the rendered chart for each flag that a user can set.
func TestChartPassesEveryFlag(t *testing.T) {
	t.Parallel()
	helm, binary := testenv.HelmPath(t), testenv.TorporPath(t)
	schema, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	testenv.ExpectNoError(t, err)
	pattern := regexp.MustCompile(`"\^--\(([a-z|-]+)\)`).FindSubmatch(schema)
	if pattern == nil {
		t.Fatal("expected the schema to list the flags of extraArgs, found none")
	}
	help, err := exec.CommandContext(t.Context(), binary, "manager", "--help").Output()
	testenv.ExpectNoError(t, err)
	groups := regexp.MustCompile(`the names are ([a-z, ]+[a-z])`).FindSubmatch(help)
	if names := fmt.Sprintf("%q", strings.Split(string(groups[1]), ", ")); !strings.Contains(string(schema), strings.ReplaceAll(names, " ", ", ")) {
		t.Errorf("expected the schema to know the controllers %s, found it does not", names)
	}
	values := map[string]string{
		"route-gateway": "routes/gateway", "route-ingress-class": "nginx",
		"allow-endpoints": "s3.example.com,10.0.0.0/8", "aws-assume-roles": "team-a=arn:aws:iam::123456789012:role/torpor", "azure-workload-identities": "team-a=00000000-0000-0000-0000-000000000001/00000000-0000-0000-0000-000000000002", "container-engine-sockets": "fleet=/var/run/docker.sock", "rollouts-at-once": "4", "mysql-failover-silent-after": "2s", "mysql-failover-unseen-after": "1m",
		"instance-stop-delay": "5s", "image-registries": "*,http://10.0.0.9", "log-level": "debug", "log-format": "text", "metrics-address": ":9090", "pprof-address": "127.0.0.1:6060", "take-over": "hibernation", "webhook-cert-dir": "/certs",
	}
	var set, want []string
	set = strings.Split(string(pattern[1]), "|")
	text := "page: {enabled: true, tlsSecret: torpor-page-tls}\nkpack: {repository: registry.example.com/droplets, builder: Builder/own, pullSecret: login}\ndisabledControllers: [backup]\nwatchNamespaces: [a]\nserviceAccountAnnotations: {cloud.example/role: torpor}\n" +
		"env: [{name: HTTPS_PROXY, value: \"http://proxy.example:3128\"}]\nvolumes: [{name: certs, secret: {secretName: certs}}]\nvolumeMounts: [{name: certs, mountPath: /certs}]\nextraArgs:\n"
	for _, name := range set {
		text += "- --" + name
		if value, ok := values[name]; ok {
			text += "=" + value
		}
		text += "\n"
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	testenv.ExpectNoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), helm, "template", "torpor", chart, "--set", "image.repository=torpor", "--kube-version", "1.36.0", "--values", file, "--show-only", "templates/deployment.yaml").Output()
	testenv.ExpectNoError(t, err)
	var d appsv1.Deployment
	testenv.ExpectNoError(t, yaml.Unmarshal(out, &d))
	c := d.Spec.Template.Spec.Containers[0]
	if text, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(c.Args), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("expected the manager to take %v, found %v: %s", c.Args, err, text)
	}
	if slices.Contains(c.Args, "--controllers=backup") || len(c.VolumeMounts) != 3 || len(d.Spec.Template.Spec.Volumes) != 3 || c.Env[len(c.Env)-1].Name != "HTTPS_PROXY" {
		t.Errorf("expected no backup, the volumes and the variable, found %+v", c)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "TORPOR_MEMORY_LIMIT" && e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil && e.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
	}) {
		t.Errorf("expected the memory of the container in TORPOR_MEMORY_LIMIT, whatever resources are set, found %+v", c.Env)
	}
	for _, arg := range c.Args {
		if name, isFlag := strings.CutPrefix(arg, "--"); isFlag {
			name, _, _ = strings.Cut(name, "=")
			set = append(set, name)
		}
	}
	// The manager needs no kubeconfig for its own cluster, and its image is in TORPOR_IMAGE.
	set = append(set, "kubeconfig", "image", "help")
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z-]+)`).FindAllSubmatch(help, -1) {
		want = append(want, string(flag[1]))
	}
	slices.Sort(set)
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), slices.Compact(set)); diff != "" {
		t.Errorf("flags (-of the manager +of the chart):\n%s", diff)
	}
}

// TestChartKeepsCRDsOfOtherProjects installs the chart on a hub with Hive's definition and one of Torpor's.
func TestChartKeepsCRDsOfOtherProjects(t *testing.T) {
	t.Parallel()
	helm := testenv.HelmPath(t)
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
	hub.InstallCRDs(t, filepath.Join("foreign", "testdata", "crds", "clusterdeployments.yaml"), filepath.Join(chart, "files", "crd", "torpor.dev_cfdeployments.yaml"))
	read := func(name string) *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKey{Name: name}, u))
		return u
	}
	others := map[string]int64{}
	for _, name := range []string{"clusterdeployments.hive.openshift.io", "cfdeployments.torpor.dev"} {
		others[name] = read(name).GetGeneration()
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), helm, append(args, "--namespace", "elsewhere", "--kubeconfig", hub.KubeconfigPath(t))...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, out)
		}
	}
	run("install", "torpor", chart, "--set", "image.repository=torpor", "--set", "crds=true")
	apps := read("cfapps.korifi.cloudfoundry.org")
	if apps.GetLabels()["app.kubernetes.io/part-of"] != "torpor" {
		t.Errorf("expected the label of the owner, found %v", apps.GetLabels())
	}
	run("upgrade", "torpor", chart, "--set", "image.repository=torpor", "--set", "crds=true", "--set", "replicas=1")
	run("uninstall", "torpor")
	if kept := read("cfapps.korifi.cloudfoundry.org"); kept.GetUID() != apps.GetUID() || kept.GetDeletionTimestamp() != nil {
		t.Error("expected a definition to outlive the release, found it deleted")
	}
	for name, generation := range others {
		if found := read(name); found.GetGeneration() != generation || found.GetAnnotations()["meta.helm.sh/release-name"] != "" {
			t.Errorf("expected %s as it was, found it written by Helm", name)
		}
	}
}

// TestManifestsAreTakenByTheServer has a real API server check the kustomize objects that are not in the chart.
func TestManifestsAreTakenByTheServer(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "torpor-system"}})
	for _, folder := range []string{"manager", "cf-api", "egress", "webhook", "webhook/service", "record", "record/webhook", "rbac", "rbac/cf"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "config", folder, "*.yaml"))
		if err != nil || len(files) < 2 {
			t.Fatalf("%s: expected manifests, found %v (%v)", folder, files, err)
		}
		listed, err := os.ReadFile(filepath.Join("..", "..", "config", folder, "kustomization.yaml"))
		testenv.ExpectNoError(t, err)
		for _, file := range files {
			switch filepath.Base(file) {
			case "kustomization.yaml", "namespace.yaml":
				continue
			}
			if !strings.Contains(string(listed), "- "+filepath.Base(file)+"\n") {
				t.Errorf("expected %s in the kustomization of its folder, found it is not", file)
			}
			text, err := os.ReadFile(file)
			testenv.ExpectNoError(t, err)
			in := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096)
			for {
				var u unstructured.Unstructured
				err := in.Decode(&u)
				if errors.Is(err, io.EOF) {
					break
				}
				testenv.ExpectNoError(t, err)
				if err := hub.Client.Create(t.Context(), &u, client.DryRunAll); err != nil {
					t.Errorf("%s: %s %s: %v", file, u.GetKind(), u.GetName(), err)
				}
			}
		}
	}
}

func rulesOf(t *testing.T, object map[string]any) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}
