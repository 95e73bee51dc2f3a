// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// Tags of a member turn an Auto Scaling group into the group of a managed node group of EKS. EKS then sets the size of
// the Auto Scaling group. An update takes as long as the start of a machine. Until it ends, the former size is shown,
// and no other update is accepted. If another caller sets the size of the Auto Scaling group, EKS reverts the size
// after the group has acted on it.

const (
	describeNodegroup     = "DescribeNodegroup"
	updateNodegroupConfig = "UpdateNodegroupConfig"
	// maxNodeGroupRequest bounds the body of a request.
	maxNodeGroupRequest = 64 << 10
)

// isOfEKS reports whether an action belongs to the API of EKS.
func isOfEKS(action string) bool {
	return action == describeNodegroup || action == updateNodegroupConfig
}

// nodeGroupSize is the scaling configuration of a node group.
type nodeGroupSize struct {
	Min     int `json:"minSize"`
	Max     int `json:"maxSize"`
	Desired int `json:"desiredSize"`
}

// nodeGroup is a managed node group of EKS.
type nodeGroup struct {
	Cluster string        `json:"cluster"`
	Name    string        `json:"name"`
	Size    nodeGroupSize `json:"size"`
	// Next is the size after the update in progress, and Ends when the update ends.
	Next *nodeGroupSize `json:"next,omitempty"`
	Ends time.Time      `json:"ends,omitzero"`
}

// withNodeGroup returns the Auto Scaling group with the node group whose name is in the tags of a member. The node
// group gets the size of the Auto Scaling group.
func (g scalingGroup) withNodeGroup(member map[string]string) scalingGroup {
	if name := member[nodeGroupTag]; name != "" {
		g.Tags = map[string]string{nodeGroupTag: name, eksClusterTag: member[eksClusterTag]}
		g.NodeGroup = &nodeGroup{Cluster: member[eksClusterTag], Name: name}
	}
	if g.NodeGroup != nil {
		owner := *g.NodeGroup
		owner.Size = nodeGroupSize{g.Min, max(g.Max, 1), g.Desired}
		g.NodeGroup = &owner
	}
	return g
}

// actForNodeGroup ends the update of a node group, and sets the size of its Auto Scaling group.
func (c *Cloud) actForNodeGroup(g scalingGroup, now time.Time) {
	if g.NodeGroup == nil {
		return
	}
	owner := *g.NodeGroup
	if owner.Next != nil && !now.Before(owner.Ends) {
		owner.Size, owner.Next, owner.Ends = *owner.Next, nil, time.Time{}
	}
	isEnded := owner.Next != g.NodeGroup.Next
	if size := owner.Size; isEnded || g.Min != size.Min || g.Max != size.Max || g.Desired != size.Desired {
		g.NodeGroup, g.Min, g.Max, g.Desired = &owner, size.Min, size.Max, size.Desired
		c.saveTransitions(stateChange{Groups: []scalingGroup{g}}, now)
	}
}

// nextUpdateEnd returns when the next update of a node group ends, or zero if no update is in progress.
func (s *cloudState) nextUpdateEnd() time.Time {
	var next time.Time
	for _, g := range s.Groups {
		if n := g.NodeGroup; n != nil && n.Next != nil && (next.IsZero() || n.Ends.Before(next)) {
			next = n.Ends
		}
	}
	return next
}

func (c *Cloud) addNodeGroupRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /clusters/{cluster}/node-groups/{name}", c.serveNodeGroup(describeNodegroup, c.describeNodeGroup))
	mux.HandleFunc("POST /clusters/{cluster}/node-groups/{name}/update-config", c.serveNodeGroup(updateNodegroupConfig, c.updateNodeGroup))
}

// nodeGroupAction performs a call for the node group of an Auto Scaling group.
type nodeGroupAction func(*http.Request, scalingGroup, time.Time) (any, error)

// serveNodeGroup counts a call of EKS, checks its access key and rate limit, and performs it for the node group in the
// path.
func (c *Cloud) serveNodeGroup(action string, act nodeGroupAction) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxNodeGroupRequest)
		answer, delay, err := c.callNodeGroup(r, action, act)
		waitFor(r.Context(), delay)
		status := http.StatusOK
		if err != nil {
			known, ok := errors.AsType[*ec2query.Error](err)
			if !ok {
				known = &ec2query.Error{Code: "ServerException", Message: err.Error()}
			}
			w.Header().Set("X-Amzn-Errortype", known.Code)
			status, answer = statusOfEKS(*known), map[string]string{"message": known.Message}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // A caller that has disconnected needs no response.
	}
}

func statusOfEKS(e ec2query.Error) int {
	if e.Status != 0 {
		return e.Status
	}
	status, ok := map[string]int{
		"ResourceNotFoundException": http.StatusNotFound, "ResourceInUseException": http.StatusConflict,
		"AccessDeniedException": http.StatusForbidden, "ServerException": http.StatusInternalServerError,
	}[e.Code]
	if !ok {
		return http.StatusBadRequest
	}
	return status
}

func (c *Cloud) callNodeGroup(r *http.Request, action string, act nodeGroupAction) (answer any, delay time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[action]++
	defer func() {
		if err != nil {
			c.calls[action+".errors"]++
		}
	}()
	now := time.Now()
	if err := c.admitCaller(r.Header.Get("Authorization"), action, now); err != nil {
		return nil, 0, err
	}
	met := c.useCallFault(action, nil, false)
	if err := met.asError(); err != nil {
		return nil, time.Duration(met.Delay), err
	}
	g, err := c.findNodeGroup(r.PathValue("cluster"), r.PathValue("name"))
	if err != nil {
		return nil, time.Duration(met.Delay), err
	}
	answer, err = act(r, g, now)
	return answer, time.Duration(met.Delay), err
}

func (c *Cloud) findNodeGroup(cluster, name string) (scalingGroup, error) {
	for _, group := range slices.Sorted(maps.Keys(c.state.Groups)) {
		if g := c.state.Groups[group]; g.NodeGroup != nil && g.NodeGroup.Cluster == cluster && g.NodeGroup.Name == name {
			return g, nil
		}
	}
	return scalingGroup{}, ec2query.NewErrorf("ResourceNotFoundException", "No node group found for name: %s.", name)
}

func (c *Cloud) describeNodeGroup(_ *http.Request, g scalingGroup, _ time.Time) (any, error) {
	status := "ACTIVE"
	if g.NodeGroup.Next != nil {
		status = "UPDATING"
	}
	return map[string]any{"nodegroup": map[string]any{
		"nodegroupName": g.NodeGroup.Name, "clusterName": g.NodeGroup.Cluster, "status": status, "scalingConfig": g.NodeGroup.Size,
		"resources": map[string]any{"autoScalingGroups": []any{map[string]any{"name": g.Name}}},
	}}, nil
}

func (c *Cloud) updateNodeGroup(r *http.Request, g scalingGroup, now time.Time) (any, error) {
	if g.NodeGroup.Next != nil {
		return nil, ec2query.NewErrorf("ResourceInUseException", "Nodegroup cannot be updated as it is currently not in Active State")
	}
	var asked struct {
		Scaling *nodeGroupSize `json:"scalingConfig"`
	}
	next := g.NodeGroup.Size // Numbers that are not in the request do not change.
	asked.Scaling = &next
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, ec2query.NewErrorf("InvalidParameterException", "The request is not JSON: %s", err)
	}
	switch {
	case next.Max < 1:
		return nil, ec2query.NewErrorf("InvalidParameterException", "maxSize must be at least 1")
	case next.Min < 0 || next.Min > next.Desired:
		return nil, ec2query.NewErrorf("InvalidParameterException", "Minimum capacity %d can't be greater than desired size %d", next.Min, next.Desired)
	case next.Desired > next.Max:
		return nil, ec2query.NewErrorf("InvalidParameterException", "desired capacity %d can't be greater than max size %d", next.Desired, next.Max)
	}
	owner := *g.NodeGroup
	owner.Next, owner.Ends = &next, now.Add(c.latencies.forState(pending))
	g.NodeGroup = &owner
	update := map[string]any{"id": newID("update-"), "status": "InProgress", "type": "ConfigUpdate"}
	return map[string]any{"update": update}, c.saveChange(stateChange{Groups: []scalingGroup{g}}, now)
}
