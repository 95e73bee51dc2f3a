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
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

func (c *Cloud) runInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	token, digest := q.StringParameter("ClientToken"), q.HashParameters("ClientToken", "Version")
	for _, r := range c.state.Reservations {
		if token == "" || r.ClientToken != token {
			continue
		}
		// A repeated token answers what the first call made, but only to the same question.
		if r.Digest != digest {
			return nil, ec2query.NewErrorf(ec2query.IdempotentParameterMismatch, "The client token was used before with other parameters.")
		}
		return &ec2query.RunInstancesAnswer{Reservation: c.answerReservation(r, r.Instances)}, nil
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
	after, made := c.state.withReservation(reservation{ID: newID("r-"), ClientToken: token, Digest: digest}, created)
	if err := c.saveChanges(after, created...); err != nil {
		return nil, err
	}
	return &ec2query.RunInstancesAnswer{Reservation: c.answerReservation(made, made.Instances)}, nil
}

// launchCount returns how many instances to create: the cloud always has room for MaxCount.
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

// readTemplate returns what all instances of the request have in common.
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
	run, err := c.commandOf(q.StringParameter("UserData"))
	if err != nil {
		return instance{}, err
	}
	i.Command = run
	return i, nil
}

// commandOf reads a machine's command from user data. User data that is no JSON object is a guest's own affair.
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
		return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The user data holds a command, and this cloud was started without leave to run commands.")
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

// createInstances makes count pending instances after the pattern, each with its own id and address.
func (c *Cloud) createInstances(pattern instance, count int, now time.Time) ([]instance, error) {
	addresses, err := c.freeAddresses(count)
	if err != nil {
		return nil, err
	}
	created := make([]instance, 0, count)
	for index, address := range addresses {
		i := pattern
		i.ID, i.LaunchIndex, i.PrivateIP, i.PrivateDNS = newID("i-"), index, address, c.privateDNS(address)
		created = append(created, i.inState(pending, now, c.latencies))
	}
	return created, nil
}

// freeAddresses returns the lowest addresses of the cloud's network that no instance holds, terminated ones included as
// long as they are shown.
func (c *Cloud) freeAddresses(count int) ([]string, error) {
	taken := map[string]bool{}
	for _, i := range c.state.Instances {
		taken[i.PrivateIP] = true
	}
	var free []string
	for n := 1; n < 255*256 && len(free) < count; n++ {
		if address := fmt.Sprintf("%s.%d.%d", c.config.Network, n/256, n%256); n%256 != 0 && n%256 != 255 && !taken[address] {
			free = append(free, address)
		}
	}
	if len(free) < count {
		return nil, ec2query.NewErrorf(ec2query.InsufficientFreeAddressesInSubnet, "The cloud has %d free addresses, the request needs %d.", len(free), count)
	}
	return free, nil
}

func (c *Cloud) privateDNS(address string) string {
	domain := c.config.Region + ".compute.internal"
	if c.config.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(address, ".", "-") + "." + domain
}

// newID returns the prefix and 17 hexadecimal digits.
func newID(prefix string) string {
	var b [9]byte
	// It never returns an error.
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])[:17]
}

// findInstances returns the instances a request names, in its order. Unknown and malformed ids fail the whole request.
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
