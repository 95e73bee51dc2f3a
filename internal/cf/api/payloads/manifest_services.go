// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// ManifestService is a service of an app in a manifest: a name or an object.
type ManifestService struct {
	Name        string          `json:"name"`
	BindingName string          `json:"binding_name"`
	Parameters  json.RawMessage `json:"parameters"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *ManifestService) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte(`"`)) {
		return json.Unmarshal(raw, &s.Name)
	}
	type withoutMethods ManifestService
	return json.Unmarshal(raw, (*withoutMethods)(s))
}

// validateServices rejects services that cannot be bound.
func validateServices(services []ManifestService) error {
	if len(services) > maxManifestServices {
		return fmt.Errorf("expected at most %d services, found %d", maxManifestServices, len(services))
	}
	names := map[string]bool{}
	for _, s := range services {
		switch parameters := string(s.Parameters); {
		case s.Name == "" || names[s.Name]:
			return fmt.Errorf("expected a different name for each service, found %q", s.Name)
		case parameters != "" && parameters != "null" && parameters != "{}":
			return fmt.Errorf("expected no parameters of the service %q, because the service is user-provided, found some; remove the parameters", s.Name)
		case utf8.RuneCountInString(s.BindingName) > maxBindingName:
			return fmt.Errorf("expected a binding name of at most %d characters, found %d for the service %q; choose a shorter name",
				maxBindingName, utf8.RuneCountInString(s.BindingName), s.Name)
		}
		names[s.Name] = true
	}
	return nil
}
