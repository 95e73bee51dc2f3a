// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// unknownName is a name in the API server's certificate that cannot be resolved.
const unknownName = "kubernetes.default.svc"

// TestServerOverrides hibernates and resumes clusters whose kubeconfig has an address that cannot be reached.
func TestServerOverrides(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	host, port, err := net.SplitHostPort(strings.TrimPrefix(e.Config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("rows", func(t *testing.T) {
		for name, row := range map[string]struct {
			server  string
			because string
			config  map[string]string
		}{
			"URL override with a URL makes the cluster reachable":           {"https://127.0.0.1:1", "refused", map[string]string{"apiURLOverride": e.Config.Host}},
			"URL override with a host and port makes the cluster reachable": {"https://127.0.0.1:1", "refused", map[string]string{"apiURLOverride": net.JoinHostPort(host, port)}},
			"IP override makes the cluster reachable":                       {"https://" + net.JoinHostPort(unknownName, port), "cannot be resolved", map[string]string{"apiServerIPOverride": host}},
			"URL and IP override together make the cluster reachable": {
				"https://127.0.0.1:1", "refused", map[string]string{"apiURLOverride": net.JoinHostPort(unknownName, port), "apiServerIPOverride": host},
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.newCluster(t, func(r *clusterSetup) { r.kubeconfig = e.kubeconfigWithServer(t, row.server) })
				s.awaitCondition(t, expectedCondition{hivev1.ClusterUnreachableCondition, "True", hivev1.ErrorConnectingToClusterReason, []string{row.because}})
				s.patchControlPlane(t, row.config)
				s.awaitCondition(t, expectedCondition{hivev1.ClusterUnreachableCondition, "False", hivev1.ClusterReachableReason, nil})
				s.setPowerState(t, hivev1.PowerStateHibernating)
				s.awaitSettled(t, hivev1.PowerStateHibernating)
				if nodes := s.get(t).Status.Hibernation.Nodes; len(nodes) != 1 || nodes[0].Name != readyNodeName {
					t.Errorf("expected the node %s to be recorded, found %+v", readyNodeName, nodes)
				}
				s.setPowerState(t, hivev1.PowerStateRunning)
				s.awaitSettled(t, hivev1.PowerStateRunning)
			})
		}
	})
}

// kubeconfigWithServer returns the administrator's kubeconfig with another server.
func (e *env) kubeconfigWithServer(t *testing.T, server string) map[string][]byte {
	t.Helper()
	config, err := clientcmd.Load(e.adminKubeconfig(t)[kubeconfigKey])
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{kubeconfigKey: data}
}

func (s *testCluster) patchControlPlane(t *testing.T, config map[string]string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"controlPlaneConfig": config}})
	if err != nil {
		t.Fatal(err)
	}
	s.patch(t, "alice", string(patch))
}
