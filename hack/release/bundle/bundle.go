// SPDX-License-Identifier: Apache-2.0

// Package bundle builds the bundle for the Operator Lifecycle Manager (OLM), from the same manifests as kustomize
// and the chart. It contains only the features without webhook configurations, because OLM would create these with
// its own certificate.
package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
)

const (
	packageName  = "torpor"
	channel      = "alpha"
	ownNamespace = "torpor-system"
	account      = "torpor-manager"
	source       = "https://github.com/torpor-dev/torpor"
	// bufferSize is how much of a manifest is read to detect its format.
	bufferSize = 4096
)

// Options are the inputs of a bundle.
type Options struct {
	// Root is the file system of the repository.
	Root fs.FS
	// Image is the manager's image, Version the version, such as v1.2.3, and Created the time of the release.
	Image, Version, Created string
}

func listFeatures() []string { return []string{"hibernation", "mysql", "slumber"} }

// Write writes the manifests and the metadata of the bundle into a folder.
func (o Options) Write(folder string) error {
	manifests, metadata := filepath.Join(folder, "manifests"), filepath.Join(folder, "metadata")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(manifests, 0o750), os.MkdirAll(metadata, 0o750)); err != nil {
		return fmt.Errorf("create the folders of the bundle: %w", err)
	}
	definitions, err := o.readDefinitions()
	if err != nil {
		return err
	}
	csv, err := o.buildServiceVersion(definitions)
	if err != nil {
		return err
	}
	files := map[string]any{
		filepath.Join(manifests, packageName+".clusterserviceversion.yaml"): csv,
		filepath.Join(metadata, "annotations.yaml"):                         map[string]any{"annotations": bundleAnnotations()},
	}
	for _, d := range definitions {
		files[filepath.Join(manifests, d.Spec.Group+"_"+d.Spec.Names.Plural+".yaml")] = d
	}
	for name, content := range files {
		text, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("encode %s: %w", filepath.Base(name), err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return fmt.Errorf("write the bundle: %w", err)
		}
	}
	return nil
}

func bundleAnnotations() map[string]string {
	const prefix = "operators.operatorframework.io.bundle."
	return map[string]string{
		prefix + "mediatype.v1": "registry+v1", prefix + "manifests.v1": "manifests/", prefix + "metadata.v1": "metadata/",
		prefix + "package.v1": packageName, prefix + "channels.v1": channel, prefix + "channel.default.v1": channel,
	}
}

// readDefinitions reads the CustomResourceDefinitions of the features.
func (o Options) readDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := fs.ReadFile(o.Root, "config/features/definitions.yaml")
	patterns := map[string][]string{}
	if err = errors.Join(err, yaml.Unmarshal(text, &patterns)); err != nil {
		return nil, fmt.Errorf("read which definitions a feature needs: %w", err)
	}
	var found []*apiextensionsv1.CustomResourceDefinition
	for _, feature := range listFeatures() {
		for _, pattern := range patterns[feature] {
			files, err := fs.Glob(o.Root, "config/crd/"+pattern+".yaml")
			if err != nil || len(files) == 0 {
				return nil, fmt.Errorf("%s: expected definitions called %s, found none (%w)", feature, pattern, err)
			}
			for _, file := range files {
				d := &apiextensionsv1.CustomResourceDefinition{}
				if err := readObject(o.Root, file, d); err != nil {
					return nil, err
				}
				found = append(found, d)
			}
		}
	}
	return found, nil
}

func readObject(root fs.FS, file string, into any) error {
	text, err := fs.ReadFile(root, file)
	if err = errors.Join(err, yaml.Unmarshal(text, into)); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// managerRights are the permissions of the manager: everywhere in all namespaces, and atHome in its own namespace.
type managerRights struct{ everywhere, atHome []rbacv1.PolicyRule }

// readRights reads the roles of the manager and of the features. Permissions in kube-system become permissions in
// all namespaces, limited to the names of the objects.
func (o Options) readRights() (managerRights, []string, error) {
	var found managerRights
	var controllers []string
	files := []string{"config/rbac/role_manager.yaml"}
	for _, feature := range listFeatures() {
		more, err := fs.Glob(o.Root, "config/features/"+feature+"/role_*.yaml")
		if err != nil {
			return found, nil, fmt.Errorf("list the roles of %s: %w", feature, err)
		}
		for _, file := range more {
			controllers = append(controllers, strings.TrimSuffix(strings.TrimPrefix(path.Base(file), "role_"), ".yaml"))
		}
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := fs.ReadFile(o.Root, file)
		if err != nil {
			return found, nil, fmt.Errorf("read %s: %w", file, err)
		}
		for in := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), bufferSize); ; {
			var role rbacv1.ClusterRole
			if err := in.Decode(&role); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return found, nil, fmt.Errorf("read %s: %w", file, err)
			}
			if role.Namespace == ownNamespace {
				found.atHome = append(found.atHome, role.Rules...)
			} else {
				found.everywhere = append(found.everywhere, role.Rules...)
			}
		}
	}
	return found, controllers, nil
}

// buildDeployment returns the Deployment of config/manager, for the namespace that OLM selects.
func (o Options) buildDeployment(controllers []string) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := readObject(o.Root, "config/manager/deployment.yaml", d); err != nil {
		return nil, err
	}
	if len(d.Spec.Template.Spec.Containers) != 1 {
		return nil, fmt.Errorf("expected one container in config/manager/deployment.yaml, found %d", len(d.Spec.Template.Spec.Containers))
	}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Image = o.Image
	for i := range c.Args {
		if strings.HasPrefix(c.Args[i], "--namespace=") {
			c.Args[i] = "--namespace=$(POD_NAMESPACE)"
		}
	}
	c.Args = append(c.Args, "--controllers="+strings.Join(controllers, ","))
	for i := range c.Env {
		if c.Env[i].Name == "TORPOR_IMAGE" {
			c.Env[i].Value = o.Image
		}
	}
	c.Env = slices.Insert(c.Env, 0, corev1.EnvVar{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}})
	return d, nil
}

func (o Options) buildServiceVersion(definitions []*apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	allowed, controllers, err := o.readRights()
	if err != nil {
		return nil, err
	}
	deployment, err := o.buildDeployment(controllers)
	if err != nil {
		return nil, err
	}
	examples, err := o.readExamples(definitions)
	if err != nil {
		return nil, err
	}
	version := strings.TrimPrefix(o.Version, "v")
	return map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": map[string]any{
			"name": packageName + ".v" + version, "namespace": "placeholder",
			"annotations": map[string]string{
				"alm-examples": examples, "capabilities": "Seamless Upgrades", "categories": "Cloud Provider, Database",
				"containerImage": o.Image, "createdAt": o.Created, "description": "The off switch for Kubernetes",
				"repository": source, "support": "Torpor", "operatorframework.io/suggested-namespace": ownNamespace,
			},
			"labels": map[string]string{"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported"},
		},
		"spec": map[string]any{
			"displayName": "Torpor", "version": version, "maturity": channel, "minKubeVersion": admincheck.OldestKubernetes + ".0",
			"description": "Stops and starts clusters and MySQL clusters safely, verifies the result, and records the requester.\n\nIf the cluster has definitions of Hive or MOCO, they are used unchanged.\n",
			"keywords":    []string{"hibernation", "cost", "mysql", "stop"},
			"provider":    map[string]string{"name": "Torpor"}, "links": []map[string]string{{"name": "Source", "url": source}},
			"installModes": []map[string]any{
				{"type": "OwnNamespace", "supported": false},
				{"type": "SingleNamespace", "supported": false},
				{"type": "MultiNamespace", "supported": false},
				{"type": "AllNamespaces", "supported": true},
			},
			"customresourcedefinitions": map[string]any{"owned": describeDefinitions(definitions)},
			"install": map[string]any{"strategy": "deployment", "spec": map[string]any{
				"clusterPermissions": []any{map[string]any{"serviceAccountName": account, "rules": allowed.everywhere}},
				"permissions":        []any{map[string]any{"serviceAccountName": account, "rules": allowed.atHome}},
				"deployments":        []any{map[string]any{"name": deployment.Name, "label": deployment.Labels, "spec": deployment.Spec}},
			}},
		},
	}, nil
}

func describeDefinitions(definitions []*apiextensionsv1.CustomResourceDefinition) []map[string]string {
	var owned []map[string]string
	for _, d := range definitions {
		v, kind := d.Spec.Versions[0], d.Spec.Names.Kind
		description, _, _ := strings.Cut(v.Schema.OpenAPIV3Schema.Description, "\n")
		owned = append(owned, map[string]string{"name": d.Name, "version": v.Name, "kind": kind, "displayName": kind, "description": description})
	}
	return owned
}

// readExamples returns the first example of each kind as a JSON list, which consoles show.
func (o Options) readExamples(definitions []*apiextensionsv1.CustomResourceDefinition) (string, error) {
	files, err := fs.Glob(o.Root, "examples/*.yaml")
	if err != nil {
		return "", fmt.Errorf("list the examples: %w", err)
	}
	examples := []map[string]any{}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := fs.ReadFile(o.Root, file)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", file, err)
		}
		for in := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), bufferSize); ; {
			object := map[string]any{}
			if err := in.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return "", fmt.Errorf("read %s: %w", file, err)
			}
			var kind metav1.TypeMeta
			kind.Kind, _ = object["kind"].(string)
			kind.APIVersion, _ = object["apiVersion"].(string)
			isOwned := slices.ContainsFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
				return d.Spec.Names.Kind == kind.Kind && strings.HasPrefix(kind.APIVersion, d.Spec.Group+"/")
			})
			if isOwned && !seen[kind.String()] {
				seen[kind.String()] = true
				examples = append(examples, object)
			}
		}
	}
	text, err := json.MarshalIndent(examples, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the examples: %w", err)
	}
	return string(text), nil
}
