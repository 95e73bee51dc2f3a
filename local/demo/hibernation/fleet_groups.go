// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	// The annotation is repeated here, because the module local does not import the API of the module torpor.
	machineGroupsAnnotation = torporGroup + "/machine-groups"
	torporGroup             = "torpor.dev"
	suspendGroups           = "suspend"
	scaleGroupsToZero       = "scale-to-zero"
	// groupTag is the tag in which EC2 shows the Auto Scaling group of an instance.
	groupTag = "aws:autoscaling:groupName"
	// pooledToken is the beginning of the token with which the manager calls the API server of a cluster with pools.
	pooledToken = "pooled-"
	// healthChecksPath is the path of the list of MachineHealthChecks of Cluster API, and healthCheckPath that of the
	// only MachineHealthCheck.
	healthChecksPath = "/apis/cluster.x-k8s.io/v1beta1/machinehealthchecks"
	healthCheckPath  = "/apis/cluster.x-k8s.io/v1beta1/namespaces/machines/machinehealthchecks/workers"
)

// isGrouped reports whether a cluster has an Auto Scaling group.
func (f *fleet) isGrouped(cluster int) bool {
	every := f.options.GroupedEvery
	return every > 0 && cluster%every == 0
}

// isPooled reports whether the API server of a cluster serves a MachineHealthCheck and a NodePool. If possible,
// clusters without groups are chosen.
func (f *fleet) isPooled(cluster int) bool {
	every := f.options.PooledEvery
	return every > 0 && cluster%every == every/2
}

// groupMode returns how a hibernation of a cluster treats groups and controllers, or "" for a cluster without groups
// and controllers.
func (f *fleet) groupMode(cluster int) string {
	switch {
	case f.isGrouped(cluster) && (cluster/f.options.GroupedEvery)%2 == 1 && !f.isPooled(cluster):
		return scaleGroupsToZero
	case f.isGrouped(cluster), f.isPooled(cluster):
		return suspendGroups
	default:
		return ""
	}
}

// describeMix describes the numbers of clusters with groups and pools.
func (f *fleet) describeMix() string {
	counts := map[string]int{}
	for n := range f.size.Clusters {
		if f.isGrouped(n) {
			counts[f.groupMode(n)]++
		}
		if f.isPooled(n) {
			counts["pools"]++
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d with a group that is suspended, %d with one that is scaled to zero, %d with pools", counts[suspendGroups], counts[scaleGroupsToZero], counts["pools"])
}

// addGroupLatencies gives the calls of EC2 Auto Scaling the latencies of EC2.
func (f *fleet) addGroupLatencies(account int) {
	f.addFault(account, map[string]any{"action": "DescribeAutoScalingGroups", "delay": describeLatency})
	for _, action := range []string{"SuspendProcesses", "ResumeProcesses", "UpdateAutoScalingGroup"} {
		f.addFault(account, map[string]any{"action": action, "delay": changeLatency})
	}
}

// kubeconfigOf returns the kubeconfig of a cluster. For a cluster with pools, the token identifies the cluster.
func (f *fleet) kubeconfigOf(cluster int) string {
	kubeconfig := f.target.kubeconfigOf(cluster)
	if !f.isPooled(cluster) {
		return kubeconfig
	}
	return strings.Replace(kubeconfig, "token: token", "token: "+pooledToken+fleetName(cluster), 1)
}

// verifyGroups fails if a suspended group has terminated a machine. It prints how many machines were terminated by
// groups that are scaled to zero.
func (f *fleet) verifyGroups() {
	if f.options.GroupedEvery == 0 {
		return
	}
	modes, terminated := map[string]string{}, map[string]int{}
	for n := range f.size.Clusters {
		modes[fleetName(n)] = f.groupMode(n)
	}
	for _, cloud := range f.clouds {
		f.cloudURL = cloud
		for _, i := range f.listInstances() {
			if group := i.Tags[groupTag]; i.State == "terminated" && group != "" {
				terminated[modes[group]]++
			}
		}
	}
	if terminated[suspendGroups] > 0 {
		runner.FailStep("expected suspended groups to terminate no machine, found %d terminated", terminated[suspendGroups])
	}
	f.PrintObserved("suspended groups have terminated no machine; groups that are scaled to zero have terminated %d", terminated[scaleGroupsToZero])
}

// pooledTargets are the MachineHealthChecks of the clusters with pools, by token.
type pooledTargets struct {
	mu     sync.Mutex
	checks map[string]*healthCheckDouble
}

// healthCheckDouble is a MachineHealthCheck: its version and its annotations.
type healthCheckDouble struct {
	version     int
	annotations map[string]any
}

func (p *pooledTargets) find(r *http.Request) *healthCheckDouble {
	token, isPooled := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "+pooledToken)
	if !isPooled {
		return nil
	}
	if p.checks[token] == nil {
		p.checks[token] = &healthCheckDouble{version: 1, annotations: map[string]any{}}
	}
	return p.checks[token]
}

func (c *healthCheckDouble) object() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"namespace": "machines", "name": "workers", "uid": "uid", "resourceVersion": strconv.Itoa(c.version), "annotations": c.annotations},
		"spec":     map[string]any{"maxUnhealthy": "40%"},
	}
}

// addRoutes registers the lists that only clusters with pools serve, and the patch of a MachineHealthCheck.
func (p *pooledTargets) addRoutes(mux *http.ServeMux) {
	p.handle(mux, "GET "+healthChecksPath, func(_ *http.Request, c *healthCheckDouble) (int, any) {
		return http.StatusOK, map[string]any{"items": []any{c.object()}}
	})
	p.handle(mux, "GET /apis/karpenter.sh/v1/nodepools", func(*http.Request, *healthCheckDouble) (int, any) {
		return http.StatusOK, map[string]any{"items": []any{map[string]any{"metadata": map[string]any{"name": "default"}}}}
	})
	p.handle(mux, "PATCH "+healthCheckPath, func(r *http.Request, c *healthCheckDouble) (int, any) {
		var patch struct {
			Metadata struct {
				ResourceVersion string         `json:"resourceVersion"`
				Annotations     map[string]any `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			return http.StatusBadRequest, map[string]any{}
		}
		if patch.Metadata.ResourceVersion != strconv.Itoa(c.version) {
			return http.StatusConflict, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": http.StatusConflict}
		}
		for key, value := range patch.Metadata.Annotations {
			c.annotations[key] = value
			if value == nil {
				delete(c.annotations, key)
			}
		}
		c.version++
		return http.StatusOK, c.object()
	})
}

// handle answers requests of clusters with pools. Other clusters do not serve the path.
func (p *pooledTargets) handle(mux *http.ServeMux, pattern string, answer func(*http.Request, *healthCheckDouble) (int, any)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		found := p.find(r)
		if found == nil {
			http.NotFound(w, r)
			return
		}
		status, body := answer(r, found)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // A client that has disconnected needs no response.
	})
}
