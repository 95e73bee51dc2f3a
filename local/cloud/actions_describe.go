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

	"github.com/torpor-dev/torpor/local/cloud/wire"
)

func (c *Cloud) describeInstances(q wire.Request, _ time.Time) (wire.Body, error) {
	ids := q.List("InstanceId")
	if _, err := c.find(ids); err != nil {
		return nil, err
	}
	filters, err := readFilters(q, instance{}.values)
	if err != nil {
		return nil, err
	}
	size, after, err := c.page(q, ids)
	if err != nil {
		return nil, err
	}
	answer := &wire.DescribeInstances{}
	last := 0
	for _, r := range c.ledger.Reservations {
		meant := slices.DeleteFunc(slices.Clone(r.Instances), func(id string) bool {
			return (len(ids) > 0 && !slices.Contains(ids, id)) || !filters.match(c.ledger.Instances[id].values)
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

// page returns how many reservations to answer, and the sequence of the last one the caller has. As in EC2, a call
// that names instances is not cut into pages.
func (c *Cloud) page(q wire.Request, ids []string) (size, after int, err error) {
	size, given, err := q.Number("MaxResults")
	if err != nil {
		return 0, 0, err
	}
	if given && len(ids) > 0 {
		return 0, 0, wire.Errorf(wire.InvalidParameterCombination, "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if given && (size < 5 || size > 1000) {
		return 0, 0, wire.Errorf(wire.InvalidParameterValue, "Value ( %d ) for parameter maxResults is invalid. Expecting a value from 5 to 1000.", size)
	}
	switch {
	case len(ids) > 0:
		size = len(ids)
	case given:
		size = min(size, c.config.PageSize)
	default:
		size = c.config.PageSize
	}
	token := q.Text("NextToken")
	if token == "" {
		return size, 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "after %d", &after)
	}
	if err != nil || token != pageToken(after, q) {
		return 0, 0, wire.Errorf(wire.InvalidParameterValue, "Value (%s) for parameter nextToken is invalid: it must be the token of an answer to the same question.", token)
	}
	return size, after, nil
}

// pageToken points behind a reservation and is good for the same question only, also after a restart.
func pageToken(sequence int, q wire.Request) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "after %d of %s", sequence, q.Digest("NextToken", "MaxResults", "Version")))
}

// criteria are filters that have been read: all of them must match.
type criteria []criterion

type criterion struct {
	name   string
	values []*regexp.Regexp
}

// values returns what a filter of this name compares with; false for a filter that does not exist.
type values func(name string) ([]string, bool)

func readFilters(q wire.Request, known values) (criteria, error) {
	filters, err := q.Filters()
	if err != nil {
		return nil, err
	}
	var read criteria
	for _, filter := range filters {
		if _, ok := known(filter.Name); !ok {
			return nil, wire.Errorf(wire.InvalidParameterValue, "The filter '%s' is invalid", filter.Name)
		}
		one := criterion{name: filter.Name}
		for _, value := range filter.Values {
			one.values = append(one.values, wildcard(value))
		}
		read = append(read, one)
	}
	return read, nil
}

func (c criteria) match(of values) bool {
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

// wildcard reads a filter value: * is any text, ? any character, and a backslash takes the meaning away.
func wildcard(value string) *regexp.Regexp {
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

func (i instance) values(name string) ([]string, bool) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if value, ok := i.Tags[key]; ok {
			return []string{value}, true
		}
		return nil, true
	}
	ip, dns := i.address()
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
func (c *Cloud) answerReservation(r reservation, meant []string) wire.Reservation {
	answer := wire.Reservation{ReservationID: r.ID, OwnerID: "123456789012"}
	for _, id := range meant {
		shown := answerInstance(c.ledger.Instances[id], c.config.Region+"a", r.ClientToken)
		answer.Instances.Items = append(answer.Instances.Items, shown)
	}
	return answer
}

func answerInstance(i instance, zone, clientToken string) wire.Instance {
	ip, dns := i.address()
	answer := wire.Instance{
		InstanceID: i.ID, ImageID: i.Image, State: answerState(i.State),
		PrivateDNSName: dns, PrivateIPAddress: ip,
		TransitionReason: i.TransitionReason, StateReason: i.Reason,
		LaunchIndex: i.LaunchIndex, InstanceType: i.Type, LaunchTime: wire.Time(i.LaunchTime),
		Placement:    wire.Placement{AvailabilityZone: zone, Tenancy: "default"},
		Architecture: "x86_64", RootDeviceType: "ebs", VirtualizationType: "hvm", Hypervisor: "xen",
		ClientToken: clientToken,
	}
	if i.Spot {
		answer.InstanceLifecycle = "spot"
	}
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		answer.Tags.Items = append(answer.Tags.Items, wire.ResourceTag{Key: key, Value: i.Tags[key]})
	}
	return answer
}

func answerState(s state) wire.InstanceState {
	return wire.InstanceState{Code: s.code(), Name: string(s)}
}
