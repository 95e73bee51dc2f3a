// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/config/crd"
)

// ErrManifests is returned for an unknown feature, a missing image, or an unknown way to record requesters.
var ErrManifests = errors.New("render manifests")

// The ways to record requesters, as in the chart's value record.
const (
	RecordPolicy  = "policy"
	RecordWebhook = "webhook"
	RecordOff     = "off"
)

// ManifestOptions defines which manifests are rendered.
type ManifestOptions struct {
	// Features are some of the names that the function Features returns. An empty list means all of them.
	Features []string
	// Image is the image of the manager, with its registry.
	Image string
	// Record is how requesters are recorded. RecordPolicy needs Kubernetes 1.36.
	Record string
}

// Features returns the features that a manager can run, in the order of config/default.
func Features() []string { return []string{"hibernation", "mysql", "cf", "slumber", "workloads"} }

// RenderManifests returns the YAML of a manager with the given features, for kubectl apply. The objects come from the
// kustomizations in this folder that the options require. CustomResourceDefinitions of Torpor's own kinds are included;
// those that Hive, MOCO or Korifi may have installed are not.
func RenderManifests(o ManifestOptions) ([]byte, error) {
	if len(o.Features) == 0 {
		o.Features = Features()
	}
	folders, err := o.listFolders()
	if err != nil {
		return nil, err
	}
	m := manifests{features: o.Features, seen: map[string]bool{}}
	for _, folder := range folders {
		if err := m.addFolder(folder); err != nil {
			return nil, err
		}
	}
	manager, err := m.renderManager(o.Image)
	if err != nil {
		return nil, err
	}
	definitions, err := readOwnDefinitions(o.Features)
	if err != nil {
		return nil, err
	}
	// The namespace comes first, and the Deployment comes after the permissions that its Pods need.
	documents := slices.Concat([][]byte{m.namespace}, definitions, m.objects, [][]byte{manager})
	return append(bytes.Join(documents, []byte("\n---\n")), '\n'), nil
}

// listFolders checks the options and returns the folders that they need.
func (o ManifestOptions) listFolders() ([]string, error) {
	if o.Image == "" {
		return nil, fmt.Errorf("%w: expected the image of the manager, such as registry.example/torpor:v0.1.0, found none", ErrManifests)
	}
	folders := []string{"manager", "rbac"}
	for _, feature := range o.Features {
		if !slices.Contains(Features(), feature) {
			return nil, fmt.Errorf("%w: expected each feature to be one of %s, found %q", ErrManifests, strings.Join(Features(), ", "), feature)
		}
		folders = append(folders, "features/"+feature)
	}
	if slices.Contains(o.Features, "cf") {
		folders = append(folders, "webhook")
	}
	switch o.Record {
	case RecordPolicy:
		return append(folders, "record"), nil
	case RecordWebhook:
		return append(folders, "features/record", "record/webhook"), nil
	case RecordOff:
		return folders, nil
	}
	return nil, fmt.Errorf("%w: expected requesters to be recorded by %s, %s or %s, found %q",
		ErrManifests, RecordPolicy, RecordWebhook, RecordOff, o.Record)
}

// manifests collects the objects of kustomizations.
type manifests struct {
	features          []string
	seen              map[string]bool
	namespace, deploy []byte
	objects           [][]byte
	args              []string
}

// kustomization contains the fields that the kustomizations in this folder use.
type kustomization struct {
	Resources []string `json:"resources"`
	Patches   []struct {
		Patch string `json:"patch"`
	} `json:"patches"`
}

func (m *manifests) addFolder(folder string) error {
	if m.seen[folder] {
		return nil
	}
	m.seen[folder] = true
	data, err := files.ReadFile(folder + "/kustomization.yaml")
	if err != nil {
		return fmt.Errorf("read the kustomization of %s: %w", folder, err)
	}
	var k kustomization
	if err := yaml.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("parse the kustomization of %s: %w", folder, err)
	}
	for _, resource := range k.Resources {
		if err := m.addResource(path.Join(folder, resource)); err != nil {
			return err
		}
	}
	for _, patch := range k.Patches {
		if err := m.addArgs(patch.Patch); err != nil {
			return fmt.Errorf("read the kustomization of %s: %w", folder, err)
		}
	}
	return nil
}

func (m *manifests) addResource(name string) error {
	if path.Ext(name) != ".yaml" {
		return m.addFolder(name)
	}
	data, err := files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	data = bytes.TrimSpace(data)
	switch name {
	case "manager/namespace.yaml":
		m.namespace = data
	case "manager/deployment.yaml":
		m.deploy = data
	default:
		if m.needs(name) {
			m.objects = append(m.objects, data)
		}
	}
	return nil
}

// needs reports whether a manifest is rendered. A manifest below record/ is rendered only if its feature is rendered.
func (m *manifests) needs(name string) bool {
	feature := strings.TrimSuffix(path.Base(name), ".yaml")
	return !strings.HasPrefix(name, "record/") || slices.Contains(m.features, feature)
}

// addArgs reads a patch that appends arguments to the manager's container.
func (m *manifests) addArgs(patch string) error {
	var operations []struct {
		Op, Path, Value string
	}
	if err := yaml.UnmarshalStrict([]byte(patch), &operations); err != nil {
		return fmt.Errorf("parse a patch: %w", err)
	}
	for _, o := range operations {
		if o.Op != "add" || o.Path != "/spec/template/spec/containers/0/args/-" {
			return fmt.Errorf("expected a patch that appends an argument, found %s %s", o.Op, o.Path)
		}
		if !slices.Contains(m.args, o.Value) {
			m.args = append(m.args, o.Value)
		}
	}
	return nil
}

func (m *manifests) renderManager(image string) ([]byte, error) {
	// A typed Deployment would add defaults to the manifest.
	d := unstructured.Unstructured{}
	if err := yaml.Unmarshal(m.deploy, &d.Object); err != nil {
		return nil, fmt.Errorf("parse the Deployment of the manager: %w", err)
	}
	containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return nil, fmt.Errorf("read the Deployment of the manager: %w", err)
	}
	if len(containers) != 1 {
		return nil, fmt.Errorf("read the Deployment of the manager: expected one container, found %d", len(containers))
	}
	manager, _ := containers[0].(map[string]any)
	manager["image"] = image
	args, _ := manager["args"].([]any)
	for _, arg := range m.args {
		args = append(args, arg)
	}
	manager["args"] = args
	env, _ := manager["env"].([]any)
	for _, v := range env {
		if v, isMap := v.(map[string]any); isMap && v["name"] == "TORPOR_IMAGE" {
			v["value"] = image
		}
	}
	if err := unstructured.SetNestedSlice(d.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return nil, fmt.Errorf("write the Deployment of the manager: %w", err)
	}
	data, err := yaml.Marshal(d.Object)
	if err != nil {
		return nil, fmt.Errorf("write the Deployment of the manager: %w", err)
	}
	return bytes.TrimSpace(data), nil
}

// readOwnDefinitions returns the CustomResourceDefinitions in Torpor's own API group that the features need.
func readOwnDefinitions(features []string) ([][]byte, error) {
	data, err := files.ReadFile("features/definitions.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the definitions of the features: %w", err)
	}
	var patterns map[string][]string
	if err := yaml.Unmarshal(data, &patterns); err != nil {
		return nil, fmt.Errorf("parse the definitions of the features: %w", err)
	}
	var found [][]byte
	for _, feature := range features {
		for _, pattern := range patterns[feature] {
			if !strings.HasPrefix(pattern, "torpor.dev_") {
				continue
			}
			names, err := fs.Glob(crd.Files, pattern+".yaml")
			if err != nil {
				return nil, fmt.Errorf("list the definitions of %s: %w", feature, err)
			}
			for _, name := range names {
				data, err := crd.Files.ReadFile(name)
				if err != nil {
					return nil, fmt.Errorf("read %s: %w", name, err)
				}
				found = append(found, bytes.TrimSpace(bytes.TrimPrefix(data, []byte("---\n"))))
			}
		}
	}
	return found, nil
}
