// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// An instance joins an Auto Scaling group by a tag, which also creates the group. The group then acts like a group in
// EC2, but without delays: unless its processes are suspended, it marks stopping and stopped members as unhealthy,
// terminates them, and launches replacements. A member stays marked even if it runs again.

// The processes of a group.
const (
	launchProcess           = "Launch"
	terminateProcess        = "Terminate"
	healthCheckProcess      = "HealthCheck"
	replaceUnhealthyProcess = "ReplaceUnhealthy"
)

// groupProcesses returns the processes that can be suspended.
func groupProcesses() []string {
	return []string{
		launchProcess, terminateProcess, "AddToLoadBalancer", "AlarmNotification", "AZRebalance", healthCheckProcess,
		"InstanceRefresh", replaceUnhealthyProcess, "ScheduledActions",
	}
}

// scalingGroup is an Auto Scaling group.
type scalingGroup struct {
	Name    string `json:"name"`
	Min     int    `json:"min"`
	Max     int    `json:"max"`
	Desired int    `json:"desired"`
	// Suspended are the suspended processes, sorted.
	Suspended []string `json:"suspended,omitempty"`
	// Unhealthy are the members that are marked to be replaced.
	Unhealthy []string `json:"unhealthy,omitempty"`
	// Tags are the tags of the group itself.
	Tags map[string]string `json:"tags,omitempty"`
	// NodeGroup is the node group of EKS that sets the size of the group.
	NodeGroup *nodeGroup `json:"nodeGroup,omitempty"`
	// Template is the instance from which new members are copied.
	Template instance `json:"template"`
}

func (g scalingGroup) isActive(process string) bool { return !slices.Contains(g.Suspended, process) }

// joinedGroups returns the groups that are changed when tags change instances from before to after.
func (s *cloudState) joinedGroups(before, after []instance) []scalingGroup {
	changed := map[string]scalingGroup{}
	for n, i := range after {
		name := i.Tags[groupTag]
		isJoining := before[n].Tags[groupTag] != name
		if name == "" || !isJoining && before[n].Tags[nodeGroupTag] == i.Tags[nodeGroupTag] {
			continue
		}
		g, isKnown := changed[name]
		if !isKnown {
			g = s.Groups[name]
		}
		if g.Name = name; isJoining {
			g.Desired++
		}
		g.Max = max(g.Max, g.Desired)
		g = g.withNodeGroup(i.Tags)
		g.Template = instance{Type: i.Type, Image: i.Image, Spot: i.Spot, Tags: i.Tags, Latency: i.Latency, Command: i.Command}
		changed[name] = g
	}
	return slices.Collect(maps.Values(changed))
}

// members returns the instances of a group, sorted by id, without those that are shutting down or terminated.
func (s *cloudState) members(group string) []instance {
	var found []instance
	for id := range s.byTagKey[groupTag] {
		i := s.Instances[id]
		if i.Tags[groupTag] == group && i.State != terminated && i.State != shuttingDown {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b instance) int { return strings.Compare(a.ID, b.ID) })
	return found
}

// actForGroups performs the processes that are not suspended, for all groups.
func (c *Cloud) actForGroups(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(c.state.Groups)) {
		c.actForGroup(c.state.Groups[name], now)
		c.actForNodeGroup(c.state.Groups[name], now)
	}
}

func (c *Cloud) actForGroup(g scalingGroup, now time.Time) {
	members := c.state.members(g.Name)
	marked := len(g.Unhealthy)
	for _, i := range members {
		isOff := i.State == stopping || i.State == stopped
		if isOff && g.isActive(healthCheckProcess) && !slices.Contains(g.Unhealthy, i.ID) {
			g.Unhealthy = append(slices.Clone(g.Unhealthy), i.ID)
		}
	}
	var left, gone []instance
	for _, i := range members {
		isReplaced := slices.Contains(g.Unhealthy, i.ID) && g.isActive(replaceUnhealthyProcess)
		isSurplus := len(left) >= g.Desired
		if g.isActive(terminateProcess) && (isReplaced || isSurplus) {
			gone = append(gone, i)
		} else {
			left = append(left, i)
		}
	}
	if len(g.Unhealthy) != marked {
		c.saveTransitions(stateChange{Groups: []scalingGroup{g}}, now)
	}
	c.terminateMembers(gone, now)
	if missing := g.Desired - len(left); missing > 0 && g.isActive(launchProcess) {
		c.launchMembers(g, missing, now)
	}
}

func (c *Cloud) terminateMembers(members []instance, now time.Time) {
	if len(members) == 0 {
		return
	}
	var after []instance
	for _, i := range members {
		next, _ := i.afterRequest(terminate, now, c.latencies)
		after = append(after, next)
	}
	c.saveTransitions(stateChange{Instances: after}, now)
	for n, i := range after {
		c.signalMachine(members[n], i, false)
	}
}

func (c *Cloud) launchMembers(g scalingGroup, count int, now time.Time) {
	created, err := c.createInstances(g.Template, count, now)
	if err != nil {
		c.config.Log.Error("cannot launch members of a group", "group", g.Name, "error", err)
		return
	}
	made := c.state.newReservation(reservation{ID: newID("r-")}, created)
	c.saveTransitions(stateChange{Reservation: made, Instances: created}, now)
}

// findGroup returns the group whose name is in the request.
func (c *Cloud) findGroup(q ec2query.Request) (scalingGroup, error) {
	name := q.StringParameter("AutoScalingGroupName")
	g, ok := c.state.Groups[name]
	if !ok {
		return scalingGroup{}, ec2query.NewErrorf(ec2query.ValidationError, "AutoScalingGroup name not found - AutoScalingGroup: %s not found", name)
	}
	return g, nil
}

func (c *Cloud) describeAutoScalingGroups(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
	answer := &ec2query.DescribeGroupsAnswer{}
	for _, name := range q.ListValues("AutoScalingGroupNames.member") {
		g, ok := c.state.Groups[name]
		if !ok {
			continue
		}
		shown := ec2query.AutoScalingGroup{Name: name, Min: g.Min, Max: g.Max, Desired: g.Desired}
		for _, process := range g.Suspended {
			shown.Suspended.Members = append(shown.Suspended.Members, ec2query.SuspendedProcess{Name: process, Reason: "User suspended"})
		}
		for _, i := range c.state.members(name) {
			// As in EC2, a stopped member is reported as healthy until a health check marks it.
			member := ec2query.GroupMember{InstanceID: i.ID, LifecycleState: "InService", HealthStatus: "Healthy", AvailabilityZone: c.config.Region + "a"}
			if i.State == pending {
				member.LifecycleState = "Pending"
			}
			if slices.Contains(g.Unhealthy, i.ID) {
				member.HealthStatus = "Unhealthy"
			}
			shown.Instances.Members = append(shown.Instances.Members, member)
		}
		for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
			shown.Tags.Members = append(shown.Tags.Members, ec2query.GroupTag{Key: key, Value: g.Tags[key]})
		}
		answer.Result.Groups.Members = append(answer.Result.Groups.Members, shown)
	}
	return answer, nil
}

func (c *Cloud) suspendProcesses(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changeProcesses(q, now, func(suspended, named []string) []string {
		all := slices.Concat(suspended, named)
		slices.Sort(all)
		return slices.Compact(all)
	})
}

func (c *Cloud) resumeProcesses(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changeProcesses(q, now, func(suspended, named []string) []string {
		return slices.DeleteFunc(slices.Clone(suspended), func(process string) bool { return slices.Contains(named, process) })
	})
}

// changeProcesses changes the suspended processes of a group. A request without process names concerns all processes.
func (c *Cloud) changeProcesses(q ec2query.Request, now time.Time, change func(suspended, named []string) []string) (ec2query.Answer, error) {
	g, err := c.findGroup(q)
	if err != nil {
		return nil, err
	}
	named := q.ListValues("ScalingProcesses.member")
	if len(named) == 0 {
		named = groupProcesses()
	}
	for _, process := range named {
		if !slices.Contains(groupProcesses(), process) {
			return nil, ec2query.NewErrorf(ec2query.ValidationError, "Invalid scaling process type: %s", process)
		}
	}
	g.Suspended = change(g.Suspended, named)
	return &ec2query.GroupChangedAnswer{}, c.saveChange(stateChange{Groups: []scalingGroup{g}}, now)
}

func (c *Cloud) updateAutoScalingGroup(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	g, err := c.findGroup(q)
	if err != nil {
		return nil, err
	}
	for name, number := range map[string]*int{"MinSize": &g.Min, "MaxSize": &g.Max, "DesiredCapacity": &g.Desired} {
		value, isGiven, err := q.ParseNumber(name)
		if err != nil {
			return nil, err
		}
		if isGiven {
			*number = value
		}
	}
	if g.Min < 0 || g.Desired < g.Min || g.Desired > g.Max {
		return nil, ec2query.NewErrorf(ec2query.ValidationError, "Desired capacity:%d must be between the specified min size:%d and max size:%d", g.Desired, g.Min, g.Max)
	}
	return &ec2query.GroupChangedAnswer{}, c.saveChange(stateChange{Groups: []scalingGroup{g}}, now)
}
