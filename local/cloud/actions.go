// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

func (c *Cloud) runInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	token, digest := q.StringParameter("ClientToken"), q.HashParameters("ClientToken", "Version")
	for _, r := range c.state.Reservations {
		if token == "" {
			break
		}
		if r.ClientToken != token {
			continue
		}
		// A repeated token returns the instances of the first call, but only for the same parameters.
		if r.Digest != digest {
			return nil, ec2query.NewErrorf(ec2query.IdempotentParameterMismatch, "The client token was used before with other parameters.")
		}
		var made []instance
		for _, id := range r.Instances {
			made = append(made, c.state.Instances[id])
		}
		return &ec2query.RunInstancesAnswer{Reservation: c.answerReservation(r, made)}, nil
	}
	count, err := launchCount(q)
	if err != nil {
		return nil, err
	}
	pattern, err := c.readTemplate(q)
	if err != nil {
		return nil, err
	}
	created, err := c.createInstances(pattern, count, now)
	if err != nil {
		return nil, err
	}
	made := c.state.newReservation(reservation{ID: newID("r-"), ClientToken: token, Digest: digest}, created)
	if err := c.saveChange(stateChange{Reservation: made, Instances: created}, now); err != nil {
		return nil, err
	}
	return &ec2query.RunInstancesAnswer{Reservation: c.answerReservation(*made, created)}, nil
}

// launchCount returns the number of instances that RunInstances creates. It is always MaxCount, because the simulated
// cloud never creates only some of the requested instances.
func launchCount(q ec2query.Request) (int, error) {
	least, given, err := q.ParseNumber("MinCount")
	if err != nil {
		return 0, err
	}
	most, givenMost, err := q.ParseNumber("MaxCount")
	if err != nil {
		return 0, err
	}
	if !given || !givenMost {
		return 0, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameters MinCount and MaxCount")
	}
	if least < 1 || most < least {
		return 0, ec2query.NewErrorf(ec2query.InvalidParameterValue, "MinCount must be at least 1 and MaxCount at least MinCount, found %d and %d", least, most)
	}
	return most, nil
}

func (c *Cloud) readTemplate(q ec2query.Request) (instance, error) {
	i := instance{Image: q.StringParameter("ImageId"), Type: cmp.Or(q.StringParameter("InstanceType"), "m1.small")}
	if i.Image == "" {
		return instance{}, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter ImageId")
	}
	switch market := q.StringParameter("InstanceMarketOptions.MarketType"); market {
	case "":
	case "spot":
		i.Spot = true
		i.Persistent = q.StringParameter("InstanceMarketOptions.SpotOptions.SpotInstanceType") == "persistent"
	default:
		return instance{}, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Value (%s) for parameter MarketType is invalid. This cloud has spot only.", market)
	}
	for _, specification := range q.ListTagSpecifications() {
		if specification.ResourceType != "instance" {
			return instance{}, ec2query.NewErrorf(ec2query.InvalidParameterValue, "'%s' is not a valid taggable resource type here. This cloud has instance only.", specification.ResourceType)
		}
		tags, err := withTags(i.Tags, specification.Tags)
		if err != nil {
			return instance{}, err
		}
		i.Tags = tags
	}
	var err error
	if i.StopProtected, err = q.ParseFlag("DisableApiStop"); err != nil {
		return instance{}, err
	}
	i.Command, err = c.commandOf(q.StringParameter("UserData"))
	return i, err
}

// commandOf reads a machine's command from user data. It ignores user data that is not a JSON object, because such user
// data is meant for the guest.
func (c *Cloud) commandOf(userData string) (*machineCommand, error) {
	text, err := base64.StdEncoding.DecodeString(userData)
	if err != nil {
		return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Invalid BASE64 encoding of user data.")
	}
	text = bytes.TrimSpace(text)
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, nil
	}
	if !c.config.AllowCommands {
		return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The user data contains a command, and this cloud was started without permission to run commands.")
	}
	var run machineCommand
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&run); err != nil {
		return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, `The user data must be {"command":["/path/bin","arg"],"env":{"K":"V"},"log":"/file"}: %v`, err)
	}
	if len(run.Argv) == 0 || run.Argv[0] == "" {
		return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The command in the user data is empty.")
	}
	return &run, nil
}

func (c *Cloud) createInstances(pattern instance, count int, now time.Time) ([]instance, error) {
	if err := c.requireCapacity(pattern.Type, count); err != nil {
		return nil, err
	}
	addresses := c.state.freeAddresses(c.config.Network, count)
	if len(addresses) < count {
		return nil, ec2query.NewErrorf(ec2query.InsufficientFreeAddressesInSubnet, "The cloud has %d free addresses, the request needs %d.", len(addresses), count)
	}
	created := make([]instance, 0, count)
	for index, address := range addresses {
		i := pattern
		i.ID, i.LaunchIndex, i.PrivateIP, i.PrivateDNS = newID("i-"), index, address, c.privateDNS(address)
		created = append(created, i.inState(pending, now, c.latencies))
	}
	return created, nil
}

// requireCapacity returns an error if a request exceeds the capacity of a type.
func (c *Cloud) requireCapacity(kind string, more int) error {
	most, isLimited := c.capacity[kind]
	if !isLimited {
		return nil
	}
	for _, i := range c.state.Instances {
		if i.Type == kind && (i.State == pending || i.State == running || i.State == stopping) {
			more++
		}
	}
	if more > most {
		return ec2query.NewErrorf(ec2query.InsufficientInstanceCapacity, "We currently do not have sufficient %s capacity in the Availability Zone you requested (%sa).", kind, c.config.Region)
	}
	return nil
}

func (c *Cloud) privateDNS(address string) string {
	domain := c.config.Region + ".compute.internal"
	if c.config.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(address, ".", "-") + "." + domain
}

// newID returns the prefix followed by 17 random hexadecimal digits.
func newID(prefix string) string {
	var b [9]byte
	// Read never returns an error.
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])[:17]
}

// findInstances returns the instances with these ids, in the same order. It returns an error if any id is unknown or
// malformed.
func (c *Cloud) findInstances(ids []string) ([]instance, error) {
	var found []instance
	var unknown []string
	for _, id := range ids {
		if !validID(id) {
			return nil, ec2query.NewErrorf(ec2query.InvalidInstanceIDMalformed, "Invalid id: %q", id)
		}
		i, ok := c.state.Instances[id]
		if !ok {
			unknown = append(unknown, id)
		}
		found = append(found, i)
	}
	switch len(unknown) {
	case 0:
		return found, nil
	case 1:
		return nil, ec2query.NewErrorf(ec2query.InvalidInstanceIDNotFound, "The instance ID '%s' does not exist", unknown[0])
	default:
		return nil, ec2query.NewErrorf(ec2query.InvalidInstanceIDNotFound, "The instance IDs '%s' do not exist", strings.Join(unknown, ", "))
	}
}

func validID(id string) bool {
	digits, ok := strings.CutPrefix(id, "i-")
	if !ok || !slices.Contains([]int{8, 17}, len(digits)) {
		return false
	}
	return strings.Trim(digits, "0123456789abcdef") == ""
}

func (c *Cloud) startInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changePower(q, start, now)
}

func (c *Cloud) terminateInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changePower(q, terminate, now)
}

func (c *Cloud) stopInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	hibernate, err := q.ParseFlag("Hibernate")
	if err != nil {
		return nil, err
	}
	if hibernate {
		return nil, ec2query.NewErrorf(ec2query.UnsupportedHibernationConfiguration, "The instances of this cloud are not configured for hibernation.")
	}
	return c.changePower(q, stop, now)
}

// changePower applies one verb to all instances in the request, or to no instance.
func (c *Cloud) changePower(q ec2query.Request, v powerVerb, now time.Time) (ec2query.Answer, error) {
	force, err := q.ParseFlag("Force")
	if err != nil {
		return nil, err
	}
	ids := q.ListValues("InstanceId")
	if len(ids) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter InstanceId")
	}
	before, err := c.findInstances(ids)
	if err != nil {
		return nil, err
	}
	after, err := c.requestAll(before, v, now)
	if err != nil {
		return nil, err
	}
	// Write the state before sending the signals: after a crash, a stop whose machine has ended must still be
	// recorded.
	if err := c.saveChange(stateChange{Instances: after}, now); err != nil {
		return nil, err
	}
	answer := &ec2query.StateChangesAnswer{}
	for n, i := range after {
		c.signalMachine(before[n], i, force && v == stop)
		answer.Instances.Items = append(answer.Instances.Items, ec2query.StateChange{
			InstanceID: i.ID, Current: answerState(i.State), Previous: answerState(before[n].State),
		})
	}
	return answer, nil
}

func (c *Cloud) requestAll(before []instance, v powerVerb, now time.Time) ([]instance, error) {
	var after []instance
	var refused []string
	starting := map[string]int{}
	for _, i := range before {
		if v == stop && i.StopProtected {
			return nil, ec2query.NewErrorf(ec2query.OperationNotPermitted, "The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.", i.ID)
		}
		if v == start && i.State == stopped {
			if i.isReservationCancelled() {
				return nil, ec2query.NewErrorf(ec2query.ReservationCapacityExceeded, "The targeted Capacity Reservation of '%s' does not have enough available instance capacity to fulfill your request.", i.ID)
			}
			starting[i.Type]++
		}
		if v == stop && i.Spot && !i.Persistent {
			return nil, ec2query.NewErrorf(ec2query.UnsupportedOperation, "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", i.ID)
		}
		next, ok := i.afterRequest(v, now, c.latencies)
		if !ok {
			refused = append(refused, i.ID)
		}
		after = append(after, next)
	}
	if len(refused) > 0 {
		done := map[powerVerb]string{start: "started", stop: "stopped", terminate: "terminated"}[v]
		return nil, ec2query.NewErrorf(ec2query.IncorrectInstanceState, "The instance '%s' is not in a state from which it can be %s.", strings.Join(refused, ", "), done)
	}
	for kind, count := range starting {
		if err := c.requireCapacity(kind, count); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// modifyInstanceAttribute sets disableApiStop, the only attribute that it supports.
func (c *Cloud) modifyInstanceAttribute(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	found, err := c.findInstances([]string{q.StringParameter("InstanceId")})
	if err != nil {
		return nil, err
	}
	if found[0].StopProtected, err = q.ParseFlag("DisableApiStop.Value"); err != nil {
		return nil, err
	}
	if err := c.saveChange(stateChange{Instances: found}, now); err != nil {
		return nil, err
	}
	return &ec2query.ReturnAnswer{Return: true}, nil
}

// signalMachine signals the machine of an instance that has to end. It sends SIGTERM once, or SIGKILL if forced, even
// during a stop.
func (c *Cloud) signalMachine(before, after instance, force bool) {
	p := c.processes[after.ID]
	if p == nil || (after.State != stopping && after.State != shuttingDown) {
		return
	}
	switch {
	case force:
		p.Kill()
	case before.State != after.State:
		p.Terminate()
	}
}

func (c *Cloud) describeInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	ids := q.ListValues("InstanceId")
	if _, err := c.findInstances(ids); err != nil {
		return nil, err
	}
	filters, err := readFilters(q, instance{}.filterValues)
	if err != nil {
		return nil, err
	}
	size, after, err := c.choosePage(q, ids)
	if err != nil {
		return nil, err
	}
	candidates, areAll := c.state.candidates(ids, filters)
	answer := &ec2query.DescribeInstancesAnswer{}
	last := 0
	for _, r := range c.state.Reservations[c.state.findReservation(after+1):] {
		if !areAll && !slices.ContainsFunc(r.Instances, func(id string) bool { return candidates[id] }) {
			continue
		}
		var meant []instance
		for _, id := range r.Instances {
			if i, isVisible := c.readInstance(id, now); isVisible && (areAll || candidates[id]) && filters.matchAll(i.filterValues) {
				meant = append(meant, i)
				c.noteListed(i, now)
			}
		}
		if len(meant) == 0 {
			continue
		}
		if len(answer.Reservations.Items) == size {
			answer.NextToken = pageToken(last, q)
			break
		}
		answer.Reservations.Items = append(answer.Reservations.Items, c.answerReservation(r, meant))
		last = r.Sequence
	}
	return answer, nil
}

// candidates returns the ids of the instances that may match, according to the indexes. The second result is true if
// the indexes exclude no instance.
func (s *cloudState) candidates(ids []string, filters filterCriteria) (map[string]bool, bool) {
	found := map[string]bool{}
	if len(ids) > 0 {
		for _, id := range ids {
			found[id] = true
		}
		return found, false
	}
	for _, filter := range filters {
		keys, isExact := filter.tagKeys()
		if !isExact {
			continue
		}
		if len(keys) == 1 {
			return s.byTagKey[keys[0]], false
		}
		for _, key := range keys {
			maps.Copy(found, s.byTagKey[key])
		}
		return found, false
	}
	return nil, true
}

// choosePage returns the size of the page, and the sequence number of the last reservation on the previous page. As in
// EC2, the response to a call that names instances is not paginated.
func (c *Cloud) choosePage(q ec2query.Request, ids []string) (size, after int, err error) {
	size, given, err := q.ParseNumber("MaxResults")
	if err != nil {
		return 0, 0, err
	}
	if given && len(ids) > 0 {
		return 0, 0, ec2query.NewErrorf(ec2query.InvalidParameterCombination, "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if given && (size < 5 || size > 1000) {
		return 0, 0, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Value ( %d ) for parameter maxResults is invalid. Expecting a value from 5 to 1000.", size)
	}
	switch {
	// EC2 does not paginate the response to a call that names instances.
	case len(ids) > 0:
		size = len(ids)
	case given:
		size = min(size, c.config.PageSize)
	default:
		size = c.config.PageSize
	}
	token := q.StringParameter("NextToken")
	if token == "" {
		return size, 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "after %d", &after)
	}
	if err != nil || token != pageToken(after, q) {
		return 0, 0, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Value (%s) for parameter nextToken is invalid: it must be the token from an answer to the same request.", token)
	}
	return size, after, nil
}

// pageToken returns the token of the page after a reservation. It is valid only for the same parameters except
// MaxResults, also after a restart.
func pageToken(sequence int, q ec2query.Request) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "after %d of %s", sequence, q.HashParameters("NextToken", "MaxResults", "Version")))
}

// filterCriteria are parsed filters. An instance must match all of them.
type filterCriteria []filterCriterion

type filterCriterion struct {
	name string
	// texts are the literal values; patterns are the values with wildcards.
	texts    map[string]bool
	patterns []*regexp.Regexp
}

// maxFilterValues is the maximum number of values in all filters of a call, as in EC2.
const maxFilterValues = 200

// valuesByName returns an instance's values for the name of a filter. The second result is false if the filter is
// unknown.
type valuesByName func(name string) ([]string, bool)

func readFilters(q ec2query.Request, known valuesByName) (filterCriteria, error) {
	filters, err := q.ParseFilters()
	if err != nil {
		return nil, err
	}
	var read filterCriteria
	values := 0
	for _, filter := range filters {
		if _, ok := known(filter.Name); !ok {
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The filter '%s' is invalid", filter.Name)
		}
		if values += len(filter.Values); values > maxFilterValues {
			return nil, ec2query.NewErrorf(ec2query.FilterLimitExceeded, "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		}
		one := filterCriterion{name: filter.Name, texts: map[string]bool{}}
		for _, value := range filter.Values {
			if strings.ContainsAny(value, `*?\`) {
				one.patterns = append(one.patterns, compileWildcard(value))
			} else {
				one.texts[value] = true
			}
		}
		read = append(read, one)
	}
	return read, nil
}

// tagKeys returns the tag keys that the filter requires. An instance must have at least one of them. The second result
// is false if the filter requires no exact key.
func (f filterCriterion) tagKeys() ([]string, bool) {
	if key, ok := strings.CutPrefix(f.name, "tag:"); ok {
		return []string{key}, true
	}
	return slices.Collect(maps.Keys(f.texts)), f.name == "tag-key" && len(f.patterns) == 0
}

func (f filterCriterion) matches(value string) bool {
	return f.texts[value] || slices.ContainsFunc(f.patterns, func(wanted *regexp.Regexp) bool { return wanted.MatchString(value) })
}

func (c filterCriteria) matchAll(of valuesByName) bool {
	for _, filter := range c {
		found, _ := of(filter.name)
		if !slices.ContainsFunc(found, filter.matches) {
			return false
		}
	}
	return true
}

// compileWildcard compiles a filter value: * matches any text, ? matches one character, and a backslash escapes the
// next character.
func compileWildcard(value string) *regexp.Regexp {
	pattern, escaped := strings.Builder{}, false
	for _, r := range value {
		switch {
		case !escaped && r == '\\':
			escaped = true
			continue
		case !escaped && r == '*':
			pattern.WriteString(".*")
		case !escaped && r == '?':
			pattern.WriteString(".")
		default:
			pattern.WriteString(regexp.QuoteMeta(string(r)))
		}
		escaped = false
	}
	return regexp.MustCompile("(?s)^" + pattern.String() + "$")
}

func (i instance) filterValues(name string) ([]string, bool) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if value, ok := i.Tags[key]; ok {
			return []string{value}, true
		}
		return nil, true
	}
	ip, dns := i.privateAddress()
	switch name {
	case "tag-key":
		return slices.Collect(maps.Keys(i.Tags)), true
	case "instance-id":
		return []string{i.ID}, true
	case "instance-state-name":
		return []string{string(i.State)}, true
	case "private-dns-name":
		return []string{dns}, true
	case "private-ip-address":
		return []string{ip}, true
	default:
		return nil, false
	}
}

func (c *Cloud) answerReservation(r reservation, meant []instance) ec2query.Reservation {
	answer := ec2query.Reservation{ReservationID: r.ID, OwnerID: "123456789012"}
	for _, i := range meant {
		shown := answerInstance(i, c.config.Region+"a", r.ClientToken)
		answer.Instances.Items = append(answer.Instances.Items, shown)
	}
	return answer
}

func answerInstance(i instance, zone, clientToken string) ec2query.Instance {
	ip, dns := i.privateAddress()
	answer := ec2query.Instance{
		InstanceID: i.ID, ImageID: i.Image, State: answerState(i.State),
		PrivateDNSName: dns, PrivateIPAddress: ip,
		TransitionReason: i.TransitionReason, StateReason: i.Reason,
		LaunchIndex: i.LaunchIndex, InstanceType: i.Type, LaunchTime: ec2query.Timestamp(i.LaunchTime),
		Placement:    ec2query.Placement{AvailabilityZone: zone, Tenancy: "default"},
		Architecture: "x86_64", RootDeviceType: "ebs", VirtualizationType: "hvm", Hypervisor: "xen",
		ClientToken: clientToken,
	}
	if i.Spot {
		answer.InstanceLifecycle = "spot"
	}
	if wanted := i.Tags[reservationTag]; wanted != "" {
		answer.CapacityReservation = &ec2query.CapacityReservationSpecification{TargetID: wanted}
		if !i.isReservationCancelled() {
			answer.CapacityReservationID = wanted
		}
	}
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		answer.Tags.Items = append(answer.Tags.Items, ec2query.ResourceTag{Key: key, Value: i.Tags[key]})
	}
	return answer
}

// isReservationCancelled reports whether the instance requires a capacity reservation that was cancelled. As in EC2,
// such an instance continues to run, but cannot be started again.
func (i instance) isReservationCancelled() bool {
	return i.Tags[reservationTag] != "" && i.Tags[cancelledTag] != ""
}

func answerState(s powerState) ec2query.InstanceState {
	return ec2query.InstanceState{Code: s.ec2Code(), Name: string(s)}
}

func (c *Cloud) createTags(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	tags := q.ListTags("Tag")
	if len(tags) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter Tag")
	}
	return c.changeTags(q, now, func(i instance) (instance, error) {
		changed, err := withTags(i.Tags, tags)
		i.Tags = changed
		return i, err
	})
}

// deleteTags deletes the tags in the request, or all tags if the request contains none. A tag with a value in the
// request is deleted only if the values are equal.
func (c *Cloud) deleteTags(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	named := q.ListTags("Tag")
	return c.changeTags(q, now, func(i instance) (instance, error) {
		i.Tags = maps.Clone(i.Tags)
		maps.DeleteFunc(i.Tags, func(key, value string) bool {
			return len(named) == 0 || slices.ContainsFunc(named, func(t ec2query.Tag) bool {
				return t.Key == key && (!t.HasValue || t.Value == value)
			})
		})
		return i, nil
	})
}

// changeTags changes the tags of all instances in the request, or of no instance.
func (c *Cloud) changeTags(q ec2query.Request, now time.Time, change func(instance) (instance, error)) (ec2query.Answer, error) {
	ids := q.ListValues("ResourceId")
	if len(ids) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter ResourceId")
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") {
			return nil, ec2query.NewErrorf(ec2query.InvalidID, "The ID '%s' is not valid: this cloud has instances only", id)
		}
	}
	before, err := c.findInstances(ids)
	if err != nil {
		return nil, err
	}
	var after []instance
	for _, i := range before {
		changed, err := change(i)
		if err != nil {
			return nil, err
		}
		after = append(after, changed)
	}
	if err := c.saveChange(stateChange{Instances: after, Groups: c.state.joinedGroups(before, after)}, now); err != nil {
		return nil, err
	}
	return &ec2query.ReturnAnswer{Return: true}, nil
}

const (
	// joinGroupTag adds an instance to an Auto Scaling group. Callers set this tag because the cloud has no API call
	// for it.
	joinGroupTag = "local:auto-scaling-group"
	// groupTag is the tag in which EC2 shows the group of an instance.
	groupTag = "aws:autoscaling:groupName"
	// nodeGroupTag marks the instances, and the group, of a managed node group of EKS.
	nodeGroupTag = "eks:nodegroup-name"
	// eksClusterTag contains the name of the EKS cluster.
	eksClusterTag = "eks:cluster-name"
	// reservationTag makes an instance run in a capacity reservation, and require this reservation at each start.
	// cancelledTag cancels the reservation. Callers set these tags because the cloud has no API calls for reservations.
	reservationTag, cancelledTag = "local:capacity-reservation", "local:capacity-reservation-cancelled"
)

// withTags returns a copy of the tags with more tags added, or an error if the tags exceed EC2's limits.
func withTags(tags map[string]string, given []ec2query.Tag) (map[string]string, error) {
	const most, longestKey, longestValue = 50, 128, 256
	after := maps.Clone(tags)
	if after == nil {
		after = map[string]string{}
	}
	for _, tag := range given {
		switch {
		case tag.Key == "" || utf8.RuneCountInString(tag.Key) > longestKey:
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Tag key must have 1 to %d characters, found '%s'", longestKey, tag.Key)
		case strings.HasPrefix(strings.ToLower(tag.Key), "aws:"):
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Tag keys starting with 'aws:' are reserved for internal use, found '%s'", tag.Key)
		case utf8.RuneCountInString(tag.Value) > longestValue:
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The value of tag '%s' must have at most %d characters", tag.Key, longestValue)
		}
		after[tag.Key] = tag.Value
	}
	if group := after[joinGroupTag]; group != "" {
		after[groupTag] = group
	}
	if len(after) > most {
		return nil, ec2query.NewErrorf(ec2query.TagLimitExceeded, "A resource has at most %d tags, the request makes it %d.", most, len(after))
	}
	return after, nil
}

// describeTags returns all matching tags, on one page.
func (c *Cloud) describeTags(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
	filters, err := readFilters(q, tagValues(ec2query.TagDescription{}))
	if err != nil {
		return nil, err
	}
	answer := &ec2query.DescribeTagsAnswer{}
	for _, r := range c.state.Reservations {
		for _, id := range r.Instances {
			tags := c.state.Instances[id].Tags
			for _, key := range slices.Sorted(maps.Keys(tags)) {
				tag := ec2query.TagDescription{ResourceID: id, ResourceType: "instance", Key: key, Value: tags[key]}
				if filters.matchAll(tagValues(tag)) {
					answer.Tags.Items = append(answer.Tags.Items, tag)
				}
			}
		}
	}
	return answer, nil
}

func tagValues(t ec2query.TagDescription) valuesByName {
	return func(name string) ([]string, bool) {
		value, ok := map[string]string{"resource-id": t.ResourceID, "resource-type": t.ResourceType, "key": t.Key, "value": t.Value}[name]
		return []string{value}, ok
	}
}
