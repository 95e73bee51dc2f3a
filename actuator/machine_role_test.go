// SPDX-License-Identifier: Apache-2.0

package actuator_test

import (
	"maps"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func TestFindRole(t *testing.T) {
	const unknown, controlPlane, worker = actuator.UnknownRole, actuator.ControlPlaneRole, actuator.WorkerRole
	for name, row := range map[string]struct {
		labels        map[string]string
		cluster, name string
		want          actuator.MachineRole
	}{
		"OpenShift master has the control plane role":                      {nil, "prod-x7k2p", "prod-x7k2p-master-0", controlPlane},
		"OpenShift worker has the worker role":                             {nil, "prod-x7k2p", "prod-x7k2p-worker-eu-central-1a-9vq4d", worker},
		"OpenShift infra machine has no known role":                        {nil, "prod-x7k2p", "prod-x7k2p-infra-0", unknown},
		"machine of a cluster that is named after a role: no known role":   {nil, "master-data-x7k2p", "master-data-x7k2p-infra-0", unknown},
		"worker of a cluster named master: the worker role":                {nil, "", "master-data-x7k2p-worker-0", worker},
		"master of a cluster named worker: the control plane role":         {nil, "", "my-worker-x7k2p-master-0", controlPlane},
		"word that merely contains a role is ignored: no known role":       {nil, "", "webmaster-x7k2p-0", unknown},
		"name of Azure in mixed case: the control plane role":              {nil, "Prod-X7K2P", "prod-x7k2p-MASTER-2", controlPlane},
		"control plane of Cluster API by its name: the control plane role": {nil, "prod", "prod-control-plane-q8wz4", controlPlane},
		"second control plane of kind by its name: the control plane role": {nil, "kind", "kind-control-plane2", controlPlane},
		"second worker of kind by its name: the worker role":               {nil, "kind", "kind-worker2", worker},
		"name with plane but without control: no known role":               {nil, "", "prod-plane-0", unknown},
		"machine without a name has no known role":                         {nil, "prod", "", unknown},
		"tag of Cluster API on AWS: the control plane role":                {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "control-plane"}, "", "anything", controlPlane},
		"tag of Cluster API on Azure: the worker role":                     {map[string]string{"sigs.k8s.io_cluster-api-provider-azure_role": "node"}, "", "anything", worker},
		"label of Cluster API on Google Cloud: the control plane role":     {map[string]string{"capg-role": "control-plane"}, "", "anything", controlPlane},
		"bastion of Cluster API has no known role":                         {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "bastion"}, "", "prod-bastion", unknown},
		"label takes precedence over the name":                             {map[string]string{"io.x-k8s.kind.role": "worker"}, "", "kind-control-plane", worker},
		"load balancer of kind has the control plane role":                 {map[string]string{"io.x-k8s.kind.role": "external-load-balancer"}, "", "kind-external-load-balancer", controlPlane},
		"server of k3d has the control plane role":                         {map[string]string{"k3d.role": "server"}, "", "k3d-dev-server-0", controlPlane},
		"agent of k3d has the worker role":                                 {map[string]string{"k3d.role": "agent"}, "", "k3d-dev-agent-0", worker},
		"machine with unknown labels only has no known role":               {map[string]string{"role": "master", "team": "control-plane"}, "", "anything", unknown},
		"control plane wins where labels differ":                           {map[string]string{"k3d.role": "agent", "capg-role": "control-plane"}, "", "anything", controlPlane},
	} {
		t.Run(name, func(t *testing.T) {
			if got := actuator.FindRole(maps.All(row.labels), row.cluster, row.name); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
