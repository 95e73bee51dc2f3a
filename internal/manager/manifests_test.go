// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/leaderelection/installationlock"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const configFolder = "../../config"

func readConfig(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(configFolder, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Each group of controllers needs a role, a binding, a component that enables it, and a row in docs/install.md.
func TestEveryGroupOfControllersIsInOneFeature(t *testing.T) {
	install, found := readConfig(t, "../docs/install.md"), []string{}
	for _, feature := range []string{"hibernation", "mysql", "cf", "slumber", "workloads"} {
		component, bindings := readConfig(t, "features/"+feature+"/kustomization.yaml"), readConfig(t, "features/"+feature+"/bindings.yaml")
		flags := regexp.MustCompile(`--controllers=([a-z,]+)`).FindAllStringSubmatch(component, -1)
		if len(flags) != 1 {
			t.Fatalf("%s: expected one --controllers, found %v", feature, flags)
		}
		for name := range strings.SplitSeq(flags[0][1], ",") {
			found = append(found, name)
			if _, err := listRights(name, nil); err != nil {
				t.Error(err)
			}
			if !strings.Contains(bindings, "name: torpor-"+name+"\n") || !strings.Contains(component, "role_"+name+".yaml") {
				t.Errorf("%s: expected the role of %s and its binding, found none", feature, name)
			}
			if !strings.Contains(install, "| `"+name+"` |") {
				t.Errorf("expected a row of %s in docs/install.md, found none", name)
			}
		}
	}
	want := ControllerNames()
	slices.Sort(want)
	slices.Sort(found)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("controllers of all components (-want +found):\n%s", diff)
	}
}

// TestDefaultsInstallEveryFeature compares the features that config/default and the chart install with the folders
// in config/features.
func TestDefaultsInstallEveryFeature(t *testing.T) {
	var want []string
	folders, err := os.ReadDir(filepath.Join(configFolder, "features"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() && folder.Name() != "record" { // The chart has a separate value for the record.
			want = append(want, folder.Name())
		}
	}
	var values struct {
		Features []string `json:"features"`
		Record   string   `json:"record"`
	}
	if err := yaml.Unmarshal([]byte(readConfig(t, "../charts/torpor/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	var components []string
	for _, found := range regexp.MustCompile(`(?m)^  - \.\./features/(\S+)$`).FindAllStringSubmatch(readConfig(t, "default/kustomization.yaml"), -1) {
		components = append(components, found[1])
	}
	for name, found := range map[string][]string{"the chart's features": values.Features, "the components of config/default": components} {
		slices.Sort(found)
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-want +found):\n%s", name, diff)
		}
	}
	if values.Record != "auto" {
		t.Errorf("expected the chart's record to be auto, found %q", values.Record)
	}
}

func TestBackupsHaveTheImageOfTheManager(t *testing.T) {
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(readConfig(t, "manager/deployment.yaml")), &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	for _, e := range c.Env {
		if e.Name == "TORPOR_IMAGE" && e.Value == c.Image {
			return
		}
	}
	t.Errorf("expected TORPOR_IMAGE to be %s, found %v", c.Image, c.Env)
}

// GOMEMLIMIT must follow the memory limit of the container.
func TestContainersSetGOMEMLIMIT(t *testing.T) {
	for _, file := range []string{"manager/deployment.yaml", "cf-api/deployment.yaml"} {
		documents := strings.Split(readConfig(t, file), "\n---\n")
		at := slices.IndexFunc(documents, func(document string) bool { return strings.Contains(document, "kind: Deployment\n") })
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(documents[max(at, 0)]), &d); err != nil {
			t.Fatal(err)
		}
		c := d.Spec.Template.Spec.Containers[0]
		told := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "TORPOR_MEMORY_LIMIT" && e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil &&
				e.ValueFrom.ResourceFieldRef.Resource == "limits.memory" && e.ValueFrom.ResourceFieldRef.Divisor.IsZero()
		})
		fixed := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
		if c.Resources.Limits.Memory().IsZero() || !told || fixed {
			t.Errorf("%s: expected TORPOR_MEMORY_LIMIT of limits.memory, and no GOMEMLIMIT, which would be the same for every limit; found %+v", file, c.Env)
		}
	}
}

// The manager reads objects of other projects by name, so its role must grant exactly these names.
func TestManagerMayLookForOtherProjects(t *testing.T) {
	want := map[string][]string{"leases": nil, "deployments": nil, "mutatingwebhookconfigurations": nil}
	for _, u := range []otherwriter.Upstream{otherwriter.Hive(), otherwriter.MOCO(), otherwriter.Korifi(), otherwriter.Eirini()} {
		want["leases"], want["deployments"] = append(want["leases"], u.Lease), append(want["deployments"], u.Deployment)
		want["mutatingwebhookconfigurations"] = append(want["mutatingwebhookconfigurations"], u.Webhooks...)
	}
	found := map[string][]string{}
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(strings.Split(readConfig(t, "rbac/role_manager.yaml"), "\n---\n")[0]), &role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		if _, ok := want[rule.Resources[0]]; ok && slices.Equal(rule.Verbs, []string{"get"}) {
			found[rule.Resources[0]] = rule.ResourceNames
		}
	}
	for _, names := range want {
		slices.Sort(names)
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("names that the manager may look for (-want +found):\n%s", diff)
	}
}

func TestRightsAreListedForEachNamespace(t *testing.T) {
	everywhere, err := listRights("hibernation", nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := listRights("hibernation", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if len(everywhere) == 0 || len(in) != 2*len(everywhere) {
		t.Errorf("expected each right twice, found %d and %d", len(everywhere), len(in))
	}
}

// The policies that record requesters, and the example policies, must match every kind with a switch.
func TestPoliciesMatchEveryKindWithASwitch(t *testing.T) {
	want := []string{}
	for _, kind := range kinds.ListWorkloads() {
		want = append(want, kind.GVK().Group+"/"+kind.Resource())
	}
	for _, o := range testenv.ListForeignObjects() {
		target := testenv.ReadStopAdapter(t, o.Example).Spec.Target
		want = append(want, target.Group+"/"+target.Resource)
	}
	slices.Sort(want)
	for _, file := range []string{
		"record/workloads.yaml", "record/webhook/workloads.yaml", "features/workloads/record_policy.yaml",
		"../examples/policies/reason-required.yaml", "../examples/policies/longest-stop.yaml", "../examples/policies/verbs.yaml",
	} {
		found := []string{}
		for document := range strings.SplitSeq(readConfig(t, file), "\n---\n") {
			if policy := (admissionv1.ValidatingAdmissionPolicy{}); strings.Contains(document, "torpor.dev/") && yaml.Unmarshal([]byte(document), &policy) == nil && policy.Spec.MatchConstraints != nil {
				found = append(found, listSwitchedResources(policy.Spec.MatchConstraints.ResourceRules)...)
			}
			var rules []admissionv1.NamedRuleWithOperations
			if noting := (admissionv1.MutatingWebhookConfiguration{}); yaml.Unmarshal([]byte(document), &noting) == nil && len(noting.Webhooks) == 1 {
				for _, rule := range noting.Webhooks[0].Rules {
					rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: rule})
				}
				found = append(found, listSwitchedResources(rules)...)
			}
		}
		slices.Sort(found)
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s: resources (-want +found):\n%s", file, diff)
		}
	}
}

// The manager starts objects when their stops end, which the example policies for verbs must allow.
func TestVerbPoliciesAllowStartsByTheManager(t *testing.T) {
	var wanted, granted []string
	for document := range strings.SplitSeq(readConfig(t, "../examples/policies/verbs.yaml"), "\n---\n") {
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		if policy.Spec.MatchConstraints != nil && strings.Contains(document, "check('start')") && policy.Name != "slumber-stop-verbs" {
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				for _, resource := range rule.Resources {
					wanted = append(wanted, rule.APIGroups[0]+"/"+resource)
				}
			}
		}
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" && role.Name == "torpor-start-verbs" {
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					granted = append(granted, rule.APIGroups[0]+"/"+resource)
				}
			}
		}
	}
	slices.Sort(wanted)
	slices.Sort(granted)
	if diff := cmp.Diff(wanted, granted); diff != "" || len(wanted) == 0 {
		t.Errorf("resources that the manager may start (-want +granted):\n%s", diff)
	}
}

// listSwitchedResources returns the resources of rules that match Deployments.
func listSwitchedResources(rules []admissionv1.NamedRuleWithOperations) (all []string) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			all = append(all, rule.APIGroups[0]+"/"+resource)
		}
	}
	if !slices.Contains(all, "apps/deployments") {
		return nil
	}
	return all
}

// The policies and webhooks that record requesters must have the names that uninstall and check use.
func TestRecordingPoliciesAndWebhooksHaveFixedNames(t *testing.T) {
	for _, folder := range []string{"record", "record/webhook"} {
		names := []string{}
		for _, feature := range []string{"hibernation", "mysql", "slumber", "workloads"} {
			var object metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(strings.Split(readConfig(t, folder+"/"+feature+".yaml"), "\n---\n")[0]), &object); err != nil {
				t.Fatal(err)
			}
			names = append(names, object.Name)
		}
		if diff := cmp.Diff(installationlock.ListRecordNames(), names); diff != "" {
			t.Errorf("%s (-want +found):\n%s", folder, diff)
		}
	}
}
