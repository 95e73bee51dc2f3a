// SPDX-License-Identifier: Apache-2.0

package statuses

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed statuses.yaml
var statuses []byte

// List returns the objects by the names of their states.
func List() (map[string]*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON(statuses)
	if err != nil {
		return nil, fmt.Errorf("read the statuses: %w", err)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal(data, &written); err != nil {
		return nil, fmt.Errorf("read the statuses: %w", err)
	}
	all := map[string]*unstructured.Unstructured{}
	for name, content := range written {
		all[name] = &unstructured.Unstructured{}
		if err := all[name].UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return all, nil
}
