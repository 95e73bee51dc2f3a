// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

func (c *Cloud) describeInstances(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
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
	answer := &ec2query.DescribeInstancesAnswer{}
	last := 0
	for _, r := range c.state.Reservations {
		meant := slices.DeleteFunc(slices.Clone(r.Instances), func(id string) bool {
			return (len(ids) > 0 && !slices.Contains(ids, id)) || !filters.matchAll(c.state.Instances[id].filterValues)
		})
		if r.Sequence <= after || len(meant) == 0 {
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

// choosePage returns how many reservations to answer, and the sequence of the last one the caller has. As in EC2, a call
// that names instances is not cut into pages.
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
	// EC2 does not cut the answer to a call that names instances.
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
		return 0, 0, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Value (%s) for parameter nextToken is invalid: it must be the token of an answer to the same question.", token)
	}
	return size, after, nil
}

// pageToken points behind a reservation and is good for the same question only, also after a restart.
func pageToken(sequence int, q ec2query.Request) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "after %d of %s", sequence, q.HashParameters("NextToken", "MaxResults", "Version")))
}

// filterCriteria are filters that have been read: all of them must match.
type filterCriteria []filterCriterion

type filterCriterion struct {
	name   string
	values []*regexp.Regexp
}

// valuesByName returns what a filter of this name compares with; false for a filter that does not exist.
type valuesByName func(name string) ([]string, bool)

func readFilters(q ec2query.Request, known valuesByName) (filterCriteria, error) {
	filters, err := q.ParseFilters()
	if err != nil {
		return nil, err
	}
	var read filterCriteria
	for _, filter := range filters {
		if _, ok := known(filter.Name); !ok {
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The filter '%s' is invalid", filter.Name)
		}
		one := filterCriterion{name: filter.Name}
		for _, value := range filter.Values {
			one.values = append(one.values, compileWildcard(value))
		}
		read = append(read, one)
	}
	return read, nil
}

func (c filterCriteria) matchAll(of valuesByName) bool {
	for _, filter := range c {
		found, _ := of(filter.name)
		if !slices.ContainsFunc(found, func(value string) bool {
			return slices.ContainsFunc(filter.values, func(wanted *regexp.Regexp) bool { return wanted.MatchString(value) })
		}) {
			return false
		}
	}
	return true
}

// compileWildcard reads a filter value: * is any text, ? any character, and a backslash takes the meaning away.
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

// answerReservation returns the reservation with those of its instances that are meant.
func (c *Cloud) answerReservation(r reservation, meant []string) ec2query.Reservation {
	answer := ec2query.Reservation{ReservationID: r.ID, OwnerID: "123456789012"}
	for _, id := range meant {
		shown := answerInstance(c.state.Instances[id], c.config.Region+"a", r.ClientToken)
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
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		answer.Tags.Items = append(answer.Tags.Items, ec2query.ResourceTag{Key: key, Value: i.Tags[key]})
	}
	return answer
}

func answerState(s powerState) ec2query.InstanceState {
	return ec2query.InstanceState{Code: s.ec2Code(), Name: string(s)}
}
