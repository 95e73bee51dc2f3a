// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// serviceVersion holds the fields that the test checks.
type serviceVersion struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Version                   string `json:"version"`
		CustomResourceDefinitions struct {
			Owned []struct{ Name, Version, Kind, Description string } `json:"owned"`
		} `json:"customresourcedefinitions"`
		Install struct {
			Spec struct {
				ClusterPermissions, Permissions []struct {
					ServiceAccountName string              `json:"serviceAccountName"`
					Rules              []rbacv1.PolicyRule `json:"rules"`
				}
				Deployments []struct {
					Name string                `json:"name"`
					Spec appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
			} `json:"spec"`
		} `json:"install"`
	} `json:"spec"`
}

func TestBundleIsMadeOfTheManifests(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "bundle")
	root := os.DirFS(filepath.Join("..", "..", ".."))
	if err := (Options{Root: root, Image: "registry.example/torpor:v1.2.3", Version: "v1.2.3", Created: "2026-01-02T15:04:05Z"}).Write(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "manifests", "torpor.clusterserviceversion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var csv serviceVersion
	if err := yaml.Unmarshal(text, &csv); err != nil {
		t.Fatal(err)
	}
	if csv.Metadata.Name != "torpor.v1.2.3" || csv.Spec.Version != "1.2.3" {
		t.Errorf("expected torpor.v1.2.3 of version 1.2.3, found %s of %s", csv.Metadata.Name, csv.Spec.Version)
	}
	var owned, files []string
	for _, d := range csv.Spec.CustomResourceDefinitions.Owned {
		if d.Kind == "" || d.Version == "" || d.Description == "" {
			t.Errorf("expected a kind, a version and what it is for, found %+v", d)
		}
		plural, group, _ := strings.Cut(d.Name, ".")
		owned = append(owned, group+"_"+plural+".yaml")
	}
	entries, err := os.ReadDir(filepath.Join(folder, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "_") {
			files = append(files, e.Name())
		}
	}
	slices.Sort(owned)
	if diff := cmp.Diff(files, owned); diff != "" || !slices.Contains(owned, "torpor.dev_slumbers.yaml") {
		t.Errorf("definitions (-files +owned):\n%s", diff)
	}
	expectManager(t, csv)
	var examples []map[string]any
	if err := json.Unmarshal([]byte(csv.Metadata.Annotations["alm-examples"]), &examples); err != nil || len(examples) < 5 {
		t.Errorf("expected examples of the kinds, found %d and the error %v", len(examples), err)
	}
}

func expectManager(t *testing.T, csv serviceVersion) {
	t.Helper()
	install := csv.Spec.Install.Spec
	if len(install.Deployments) != 1 || len(install.ClusterPermissions) != 1 || len(install.Permissions) != 1 {
		t.Fatalf("expected one deployment and its permissions, found %+v", install)
	}
	pod := install.Deployments[0].Spec.Template.Spec
	c := pod.Containers[0]
	if install.ClusterPermissions[0].ServiceAccountName != pod.ServiceAccountName || install.Permissions[0].ServiceAccountName != pod.ServiceAccountName {
		t.Errorf("expected the permissions of %s, found those of another account", pod.ServiceAccountName)
	}
	if !slices.Contains(c.Args, "--controllers=hibernation,machinepools,sync,backup,clustering,provisioning,slumber") || !slices.Contains(c.Args, "--namespace=$(POD_NAMESPACE)") {
		t.Errorf("expected the controllers of all features in the namespace of the Pod, found %q", c.Args)
	}
	if c.Image != "registry.example/torpor:v1.2.3" || !slices.ContainsFunc(install.ClusterPermissions[0].Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "slumbers") }) {
		t.Errorf("expected the image %s with the rights of all groups, found %s", "registry.example/torpor:v1.2.3", c.Image)
	}
	for _, p := range install.Permissions[0].Rules {
		if slices.Contains(p.ResourceNames, "torpor") {
			t.Errorf("expected the rights in kube-system not to hold in the own namespace only, found %+v", p)
		}
	}
	var image, namespace string
	for _, e := range c.Env {
		switch e.Name {
		case "TORPOR_IMAGE":
			image = e.Value
		case "POD_NAMESPACE":
			namespace = e.ValueFrom.FieldRef.FieldPath
		}
	}
	if image != c.Image || namespace != "metadata.namespace" {
		t.Errorf("expected the image of backups to be the manager's, found %q, and the namespace of the Pod, found %q", image, namespace)
	}
}
