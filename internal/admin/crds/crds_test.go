// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func readDefinition(t *testing.T, path ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func TestJudgeCRD(t *testing.T) {
	ours := readDefinition(t, "..", "..", "..", "config", "crd", "hive.openshift.io_clusterdeployments.yaml")
	hives := readDefinition(t, "..", "..", "..", "test", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml")
	hives.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "hive-operator", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
		{Manager: "kube-apiserver", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
	}
	served := func(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		crd := PrepareCRD(ours, nil, "v1.0.0")
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter} // the API server's default
		change(crd)
		return crd
	}
	for name, row := range map[string]struct {
		served     *apiextensionsv1.CustomResourceDefinition
		want       State
		mayInstall bool
	}{
		"a CRD that is not installed is Absent, and may be installed": {nil, Absent, true},
		"an equal CRD is Current":                                     {served(func(*apiextensionsv1.CustomResourceDefinition) {}), Current, false},
		"a CRD without the status in its schema is OtherVersion": {served(func(crd *apiextensionsv1.CustomResourceDefinition) {
			delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "status")
		}), OtherVersion, true},
		"an older CRD of Torpor without labels is OtherVersion":        {served(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels = nil; crd.Spec.Names.ShortNames = nil }), OtherVersion, true},
		"a CRD of another project is Foreign, and may not be replaced": {hives, Foreign, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := JudgeCRD(ours, row.served)
			if err != nil || j.State != row.want || j.MayInstall() != row.mayInstall {
				t.Errorf("expected %s and to install: %t, found %v and the error %v", row.want, row.mayInstall, j, err)
			}
		})
	}
	j, err := JudgeCRD(ours, hives)
	if err != nil {
		t.Fatal(err)
	}
	want := Judgement{
		Name: hives.Name, State: Foreign, Managers: []string{"hive-operator"}, Lacks: []string{
			"spec.platform.baremetal", "spec.platform.containers", "spec.platform.gcp", "spec.platform.ibmcloud", "spec.platform.libvirt", "spec.platform.openstack.stopMethod",
			"status.conditions[].observedGeneration", "status.hibernation", "status.hibernationCheck", "status.observedGeneration", "status.savings", "status.scheduledStops",
			"status.stops",
		},
	}
	if diff := cmp.Diff(want, j); diff != "" {
		t.Errorf("Hive's definition (-want +got):\n%s", diff)
	}
}
