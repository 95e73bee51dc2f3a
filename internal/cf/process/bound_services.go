// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// ServicesVariable is the environment variable with the bound services of an app.
const ServicesVariable = "VCAP_SERVICES"

// BoundService is a bound service with the credentials that the app receives.
type BoundService struct {
	Name, GUID, Label        string
	Tags                     []string
	BindingName, BindingGUID string
	// Credentials is a JSON object.
	Credentials []byte
}

// IsBound reports whether an app receives credentials through a binding: the binding is of this app, is no service key,
// and is not being deleted.
func IsBound(app *korifiv1alpha1.CFApp, binding *korifiv1alpha1.CFServiceBinding) bool {
	return binding.Spec.AppRef.Name == app.Name && binding.Spec.Type != "key" && binding.DeletionTimestamp.IsZero()
}

// NewBoundService returns the bound service of a binding.
func NewBoundService(instance *korifiv1alpha1.CFServiceInstance, binding *korifiv1alpha1.CFServiceBinding, credentials []byte) BoundService {
	return BoundService{
		Name: instance.Spec.DisplayName, GUID: instance.Name, Label: instance.Spec.ServiceLabel, Tags: instance.Spec.Tags,
		BindingName: binding.Spec.DisplayName, BindingGUID: binding.Name, Credentials: credentials,
	}
}

type serviceEntry struct {
	Label          string          `json:"label"`
	Name           string          `json:"name"`
	Tags           []string        `json:"tags"`
	InstanceGUID   string          `json:"instance_guid"`
	InstanceName   string          `json:"instance_name"`
	BindingGUID    string          `json:"binding_guid"`
	BindingName    *string         `json:"binding_name"`
	Credentials    json.RawMessage `json:"credentials"`
	SyslogDrainURL *string         `json:"syslog_drain_url"`
	VolumeMounts   []struct{}      `json:"volume_mounts"`
}

// FormatServices returns the value of VCAP_SERVICES, an object with lists of services by label. The lists are ordered
// by the names of the service instances.
func FormatServices(bound []BoundService) ([]byte, error) {
	byLabel := map[string][]serviceEntry{}
	bound = slices.SortedFunc(slices.Values(bound), func(a, b BoundService) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.BindingGUID, b.BindingGUID))
	})
	for _, b := range bound {
		entry := serviceEntry{
			Label: cmp.Or(b.Label, "user-provided"), Name: cmp.Or(b.BindingName, b.Name), Tags: append([]string{}, b.Tags...), InstanceGUID: b.GUID,
			InstanceName: b.Name, BindingGUID: b.BindingGUID, Credentials: b.Credentials, VolumeMounts: []struct{}{},
		}
		if b.BindingName != "" {
			entry.BindingName = &b.BindingName
		}
		if !json.Valid(b.Credentials) {
			return nil, fmt.Errorf("expected JSON as the credentials of the service instance %s, found other data; set the credentials of the instance again", b.Name)
		}
		byLabel[entry.Label] = append(byLabel[entry.Label], entry)
	}
	text, err := json.Marshal(byLabel)
	if err != nil {
		return nil, fmt.Errorf("write the services: %w", err)
	}
	return text, nil
}
