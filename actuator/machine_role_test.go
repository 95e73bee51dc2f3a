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
		"a master of OpenShift is of the control plane":             {nil, "prod-x7k2p", "prod-x7k2p-master-0", controlPlane},
		"a worker of OpenShift is a worker":                         {nil, "prod-x7k2p", "prod-x7k2p-worker-eu-central-1a-9vq4d", worker},
		"an infra machine of OpenShift says nothing":                {nil, "prod-x7k2p", "prod-x7k2p-infra-0", unknown},
		"a cluster that is called after a role gives none":          {nil, "master-data-x7k2p", "master-data-x7k2p-infra-0", unknown},
		"a cluster that is called master has workers":               {nil, "", "master-data-x7k2p-worker-0", worker},
		"a cluster that is called worker has a control plane":       {nil, "", "my-worker-x7k2p-master-0", controlPlane},
		"a word that only holds a role says nothing":                {nil, "", "webmaster-x7k2p-0", unknown},
		"names of Azure are in any case":                            {nil, "Prod-X7K2P", "prod-x7k2p-MASTER-2", controlPlane},
		"a control plane of Cluster API is known by its name":       {nil, "prod", "prod-control-plane-q8wz4", controlPlane},
		"a second control plane of kind is known by its name":       {nil, "kind", "kind-control-plane2", controlPlane},
		"a second worker of kind is known by its name":              {nil, "kind", "kind-worker2", worker},
		"a plane without control says nothing":                      {nil, "", "prod-plane-0", unknown},
		"a machine without a name says nothing":                     {nil, "prod", "", unknown},
		"a tag of Cluster API on AWS":                               {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "control-plane"}, "", "anything", controlPlane},
		"a tag of Cluster API on Azure":                             {map[string]string{"sigs.k8s.io_cluster-api-provider-azure_role": "node"}, "", "anything", worker},
		"a label of Cluster API on Google Cloud":                    {map[string]string{"capg-role": "control-plane"}, "", "anything", controlPlane},
		"a bastion of Cluster API says nothing":                     {map[string]string{"sigs.k8s.io/cluster-api-provider-aws/role": "bastion"}, "", "prod-bastion", unknown},
		"a label counts before a name":                              {map[string]string{"io.x-k8s.kind.role": "worker"}, "", "kind-control-plane", worker},
		"the load balancer of kind is what its API is reached by":   {map[string]string{"io.x-k8s.kind.role": "external-load-balancer"}, "", "kind-external-load-balancer", controlPlane},
		"a server of k3d is of the control plane":                   {map[string]string{"k3d.role": "server"}, "", "k3d-dev-server-0", controlPlane},
		"an agent of k3d is a worker":                               {map[string]string{"k3d.role": "agent"}, "", "k3d-dev-agent-0", worker},
		"labels of others say nothing":                              {map[string]string{"role": "master", "team": "control-plane"}, "", "anything", unknown},
		"of two labels that differ, that of the control plane wins": {map[string]string{"k3d.role": "agent", "capg-role": "control-plane"}, "", "anything", controlPlane},
	} {
		t.Run(name, func(t *testing.T) {
			if got := actuator.FindRole(maps.All(row.labels), row.cluster, row.name); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
