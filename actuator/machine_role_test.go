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
		"a master of OpenShift: the control plane role":                                                 {nil, "prod-x7k2p", "prod-x7k2p-master-0", controlPlane},
		"a worker of OpenShift: the worker role":                                                        {nil, "prod-x7k2p", "prod-x7k2p-worker-eu-central-1a-9vq4d", worker},
		"an infra machine of OpenShift: no known role":                                                  {nil, "prod-x7k2p", "prod-x7k2p-infra-0", unknown},
		"an infra machine of a cluster named after a role: no known role":                               {nil, "master-data-x7k2p", "master-data-x7k2p-infra-0", unknown},
		"a worker of a cluster named after a master: the worker role":                                   {nil, "", "master-data-x7k2p-worker-0", worker},
		"a master of a cluster named after a worker: the control plane role":                            {nil, "", "my-worker-x7k2p-master-0", controlPlane},
		"a name with webmaster instead of master: no known role":                                        {nil, "", "webmaster-x7k2p-0", unknown},
		"a name in mixed case, as on Azure: the control plane role":                                     {nil, "Prod-X7K2P", "prod-x7k2p-MASTER-2", controlPlane},
		"a control plane machine of Cluster API, identified by its name: the control plane role":        {nil, "prod", "prod-control-plane-q8wz4", controlPlane},
		"a second control plane node of a kind cluster, identified by its name: the control plane role": {nil, "kind", "kind-control-plane2", controlPlane},
		"a second worker of a kind cluster, identified by its name: the worker role":                    {nil, "kind", "kind-worker2", worker},
		"a name with plane but without control: no known role":                                          {nil, "", "prod-plane-0", unknown},
		"a machine without a name: no known role":                                                       {nil, "prod", "", unknown},
		"a tag of Cluster API on AWS: the control plane role":                                           {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "control-plane"}, "", "anything", controlPlane},
		"a tag of Cluster API on Azure: the worker role":                                                {map[string]string{"sigs.k8s.io_cluster-api-provider-azure_role": "node"}, "", "anything", worker},
		"a label of Cluster API on Google Cloud: the control plane role":                                {map[string]string{"capg-role": "control-plane"}, "", "anything", controlPlane},
		"a bastion of Cluster API: no known role":                                                       {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "bastion"}, "", "prod-bastion", unknown},
		"a label and a name of different roles: the role of the label":                                  {map[string]string{"io.x-k8s.kind.role": "worker"}, "", "kind-control-plane", worker},
		"a load balancer of kind: the control plane role":                                               {map[string]string{"io.x-k8s.kind.role": "external-load-balancer"}, "", "kind-external-load-balancer", controlPlane},
		"a server of k3d: the control plane role":                                                       {map[string]string{"k3d.role": "server"}, "", "k3d-dev-server-0", controlPlane},
		"an agent of k3d: the worker role":                                                              {map[string]string{"k3d.role": "agent"}, "", "k3d-dev-agent-0", worker},
		"a machine with only unknown labels: no known role":                                             {map[string]string{"role": "master", "team": "control-plane"}, "", "anything", unknown},
		"labels of different roles: the control plane role":                                             {map[string]string{"k3d.role": "agent", "capg-role": "control-plane"}, "", "anything", controlPlane},
	} {
		t.Run(name, func(t *testing.T) {
			if got := actuator.FindRole(maps.All(row.labels), row.cluster, row.name); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
