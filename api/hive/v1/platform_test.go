// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"reflect"
	"strings"
	"testing"
)

func TestEveryPlatformHasSettings(t *testing.T) {
	platforms := reflect.TypeFor[Platform]()
	for i := range platforms.NumField() {
		field := platforms.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		var spec ClusterDeploymentSpec
		reflect.ValueOf(&spec.Platform).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		if found := spec.PlatformSettings(); found.Name != name || len(found.Missing) == 0 {
			t.Errorf("spec.platform.%s without its fields: expected settings with that name that say what is missing, found %+v", name, found)
		}
	}
}
