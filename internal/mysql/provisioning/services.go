// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// Ports of an instance.
const (
	mysqlPort  = 3306
	mysqlxPort = 33060
	adminPort  = 33062
)

// buildHeadlessService gives every Pod a name, also while it is not ready: a replica that is about to become the source of
// others is not.
func buildHeadlessService(c *mocov1beta2.MySQLCluster) *unstructured.Unstructured {
	return newObject(c, "v1", "Service", c.ChildName(), map[string]any{"spec": map[string]any{
		"clusterIP": "None", "publishNotReadyAddresses": true, "selector": toJSONMap(SelectorLabels(c)),
		"ports": []any{servicePort("mysql", mysqlPort), servicePort("mysqlx", mysqlxPort), servicePort("mysql-admin", adminPort)},
	}})
}

// buildRoleService leads to the Pods that have a role. Ports and selector are not the user's.
func buildRoleService(c *mocov1beta2.MySQLCluster, role mocov1beta2.Role, t *mocov1beta2.ServiceTemplate) (*unstructured.Unstructured, error) {
	spec := map[string]any{}
	if t != nil && t.Spec != nil {
		found, err := toJSONFields(t.Spec)
		if err != nil {
			return nil, fmt.Errorf("read spec.%sServiceTemplate: %w", role, err)
		}
		spec = found
	}
	selector := toJSONMap(SelectorLabels(c))
	selector[mocov1beta2.RoleLabel] = string(role)
	maps.Copy(spec, map[string]any{
		"selector": selector, "ports": []any{servicePort("mysql", mysqlPort), servicePort("mysqlx", mysqlxPort)},
	})
	o := newObject(c, "v1", "Service", c.ChildName()+"-"+string(role), map[string]any{"spec": spec})
	if t == nil {
		return o, nil
	}
	return withUserMetadata(o, t.ObjectMeta), nil
}

func servicePort(name string, number int64) map[string]any {
	return map[string]any{"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
}
