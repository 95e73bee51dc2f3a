// SPDX-License-Identifier: Apache-2.0

// Package aws stops and starts clusters' EC2 machines.
//
// Reading order: credentials.go (the Secret) → client.go (one client per account, region and endpoint) → actuator.go
// (the calls, which are split if the cloud refuses some machines) → errors.go (messages for users).
package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
	_ actuator.GroupActuator = (*Actuator)(nil)
	_ actuator.Terminator    = (*Actuator)(nil)
)

// RequestSender sends the requests of all accounts. *http.Client implements it.
type RequestSender interface {
	Do(*http.Request) (*http.Response, error)
}

// Options configures the access to the cloud. The zero value is suitable for production.
type Options struct {
	// HTTPClient is shared by all accounts. If nil, a client is used that has the SDK's timeouts and limits the size of
	// responses.
	HTTPClient RequestSender
	// Endpoint replaces the URLs of EC2, EC2 Auto Scaling and EKS, as the environment variable AWS_ENDPOINT_URL does. A
	// Secret's endpoint_url takes precedence.
	Endpoint string
	// Endpoints are the hosts that endpoint_url may contain, in addition to those of AWS. If empty, all hosts except
	// link-local ones are allowed. Messages of an endpoint_url that is neither listed nor of AWS are hidden from users.
	Endpoints httpguard.Endpoints
	// AssumableRoles are the roles that the manager may assume with its own identity. If empty, it assumes no role.
	AssumableRoles []AssumableRole
	// CallTimeout limits one API call, including all attempts; 0 means 15 s.
	CallTimeout time.Duration
	// Attempts is the maximum number of attempts of a call that may be repeated, while the cloud throttles or does not
	// respond; 0 means 4.
	Attempts int
}

// Actuator stops and starts EC2 machines. It is safe for concurrent use.
type Actuator struct {
	options Options
	clients *cloudrest.AccountCache[*accountClient]
	// identity is the manager's own AWS identity. It is set when the first client for a role is created, and guarded by
	// the lock of clients.
	identity *awssdk.Config
}

// New returns an Actuator; it does not call the cloud.
func New(o Options) *Actuator {
	if o.HTTPClient == nil {
		o.HTTPClient = newBoundedClient(o.Endpoints)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	return &Actuator{options: o, clients: cloudrest.NewAccountCache[*accountClient]()}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "aws" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the tag `kubernetes.io/cluster/INFRA_ID=owned`", Stopped: "stopped", Credentials: "keys, a profile, a role",
		Calls:  "one listing for 200 clusters, one order for 900 machines",
		Errors: errorTable().Describe(),
	}
}

const (
	// pageSize is the page size of a listing for one cluster, and batchPageSize that for several clusters. A page of
	// machines with all optional fields must not become too large to read.
	pageSize, batchPageSize = 100, 500
	// maxPages and maxMachines limit one listing. The largest clusters have 5,000 nodes.
	maxPages    = 100
	maxMachines = 5_500
	// listTimeoutFactor limits the time for all pages of a listing, as a multiple of the timeout of one call.
	listTimeoutFactor = 2
	// maxFilterValues is the number of values that EC2 accepts in the filters of one call.
	maxFilterValues = 200
	// parallelCalls is the maximum number of concurrent calls of one operation.
	parallelCalls = 5
	// maxIDBytes and maxNameBytes exceed the lengths that EC2 allows.
	maxIDBytes, maxNameBytes = 64, 256
	maxAddresses             = 64
)

const clusterTagPrefix = "kubernetes.io/cluster/"

// Observe implements actuator.Actuator. A cluster without machines causes no error.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// AccountOf implements actuator.BatchActuator.
func (a *Actuator) AccountOf(ctx context.Context, t actuator.Target) (string, error) {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return "", err
	}
	return c.account, nil
}

// ObserveAll implements actuator.BatchActuator.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	all := map[string][]actuator.Machine{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelCalls)
	for some := range slices.Chunk(infraIDs, maxFilterValues) {
		group.Go(func() error {
			found, err := c.observeClusters(ctx, some)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, found)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, machines := range all {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return all, nil
}

// errListTooLarge means that a listing is too large. A listing for several clusters can then be split.
var errListTooLarge = errors.New("the list is too large")

// observeClusters lists the machines of clusters. It splits a listing that is too large.
func (c *accountClient) observeClusters(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error) {
	found, err := c.listMachines(ctx, infraIDs)
	if !errors.Is(err, errListTooLarge) {
		return found, err
	}
	if len(infraIDs) == 1 {
		return nil, c.unreachableError("DescribeInstances", "the list for this cluster has more pages or machines than allowed, or the response is larger than allowed")
	}
	middle := len(infraIDs) / 2
	found, err = c.observeClusters(ctx, infraIDs[:middle])
	if err != nil {
		return nil, err
	}
	more, err := c.observeClusters(ctx, infraIDs[middle:])
	maps.Copy(found, more)
	return found, err
}

func (c *accountClient) listMachines(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error) {
	wanted, keys, size := map[string]string{}, []string{}, int32(batchPageSize)
	for _, infraID := range infraIDs {
		if infraID == "" {
			return nil, actuator.Errorf(actuator.Other, "the infraID is empty, but Torpor finds machines by it: set spec.clusterMetadata.infraID")
		}
		wanted[clusterTagPrefix+infraID] = infraID
		keys = append(keys, escapeWildcards(clusterTagPrefix+infraID))
	}
	if len(infraIDs) == 1 {
		size = pageSize
	}
	pages := ec2.NewDescribeInstancesPaginator(c.api, &ec2.DescribeInstancesInput{
		Filters:    []types.Filter{{Name: awssdk.String("tag-key"), Values: keys}},
		MaxResults: awssdk.Int32(size),
	})
	all, cancel := context.WithTimeout(ctx, listTimeoutFactor*c.timeout)
	defer cancel()
	found, count := map[string][]actuator.Machine{}, 0
	// All pages are read before a decision. A machine on a missing page would seem terminated, and the cluster would
	// count as stopped while it runs.
	for n := 0; pages.HasMorePages(); n++ {
		if n >= maxPages || count > maxMachines {
			return nil, errListTooLarge
		}
		var page *ec2.DescribeInstancesOutput
		isTooLarge := false
		err := c.callWithTimeout(all, "DescribeInstances", func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			isTooLarge = errors.Is(err, httpguard.ErrAnswerTooLarge)
			return err
		})
		switch {
		case isTooLarge:
			return nil, errListTooLarge
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, c.unreachableError("DescribeInstances", "the list takes too long to read")
		case err != nil:
			return nil, err
		}
		more, err := c.addOwnedMachines(found, page, wanted)
		if err != nil {
			return nil, err
		}
		count += more
	}
	return found, nil
}

// escapeWildcards escapes the wildcards of EC2's filters, so that an infraID matches only itself.
func escapeWildcards(value string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(value)
}

// addOwnedMachines assigns the machines of a page to the wanted clusters, and returns the number of assigned
// machines.
func (c *accountClient) addOwnedMachines(found map[string][]actuator.Machine, page *ec2.DescribeInstancesOutput, wanted map[string]string) (int, error) {
	count := 0
	for _, reservation := range page.Reservations {
		for _, i := range reservation.Instances {
			// The tags are checked again, because the caller may stop any returned machine. An endpoint that ignores
			// the filter must not add machines of other owners.
			owners := ownersOf(i, wanted)
			if len(owners) == 0 || isTerminated(i) {
				continue
			}
			if len(awssdk.ToString(i.InstanceId)) > maxIDBytes {
				return 0, actuator.Errorf(actuator.Other, "DescribeInstances: expected instance ids of EC2, found one of %d bytes", len(*i.InstanceId))
			}
			state, ok := stateOf(i)
			if !ok {
				return 0, actuator.Errorf(actuator.Other, "DescribeInstances: %s is in a state that this version of Torpor does not know: update Torpor",
					awssdk.ToString(i.InstanceId))
			}
			name := tagValue(i, "Name")
			machine := actuator.Machine{
				ID: awssdk.ToString(i.InstanceId), State: state,
				Name: strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], ""), Addresses: addressesOf(i),
				Account: c.accountName(awssdk.ToString(reservation.OwnerId)), Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
				Group: groupOf(i), MissingReservation: missingReservationOf(i),
			}
			for _, owner := range owners {
				machine.Role = actuator.FindRole(eachTag(i), owner, machine.Name)
				found[owner] = append(found[owner], machine)
				count++
			}
		}
	}
	return count, nil
}

// groupTag is the tag that EC2 Auto Scaling adds to the instances of a group. Only AWS can set tags that begin with
// aws:.
const groupTag = "aws:autoscaling:groupName"

// groupOf returns the name of the Auto Scaling group of an instance, or "". Such a group terminates each instance that
// stops, and launches a new one:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-health-checks.html
func groupOf(i types.Instance) string {
	name := tagValue(i, groupTag)
	return strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], "")
}

// missingReservationOf returns the capacity reservation that a running instance requires but does not use,
// "capacity-reservations-only" if it requires any one, or "". When a reservation is cancelled, its instances continue
// to run, but cannot be started again. An instance that targets a group of reservations can also start outside of them:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-release.html
func missingReservationOf(i types.Instance) string {
	wanted := i.CapacityReservationSpecification
	if wanted == nil || awssdk.ToString(i.CapacityReservationId) != "" || i.State == nil || i.State.Name != types.InstanceStateNameRunning {
		return ""
	}
	required := ""
	if wanted.CapacityReservationPreference == types.CapacityReservationPreferenceCapacityReservationsOnly {
		required = string(wanted.CapacityReservationPreference)
	}
	if target := wanted.CapacityReservationTarget; target != nil {
		required = cmp.Or(awssdk.ToString(target.CapacityReservationId), required)
	}
	return strings.ToValidUTF8(required[:min(len(required), maxNameBytes)], "")
}

// ownersOf returns the infraIDs of the wanted clusters that own an instance according to its tags.
func ownersOf(i types.Instance, wanted map[string]string) []string {
	var owners []string
	for _, tag := range i.Tags {
		if infraID, ok := wanted[awssdk.ToString(tag.Key)]; ok && awssdk.ToString(tag.Value) == "owned" {
			owners = append(owners, infraID)
		}
	}
	return owners
}

// accountName returns the name of an account. Unless the endpoint is one of AWS, the name includes the endpoint,
// because any endpoint could claim to be a given account.
func (c *accountClient) accountName(owner string) string {
	if c.isAWS {
		return "aws/" + owner
	}
	return c.endpoint + "/" + owner
}

// addressesOf returns at most maxAddresses addresses and DNS names of the machine, from all its network interfaces.
func addressesOf(i types.Instance) []string {
	all := []*string{i.PrivateIpAddress, i.PrivateDnsName, i.PublicIpAddress, i.PublicDnsName, i.Ipv6Address}
	for _, n := range i.NetworkInterfaces {
		for _, address := range n.PrivateIpAddresses {
			all = append(all, address.PrivateIpAddress, address.PrivateDnsName)
		}
		for _, address := range n.Ipv6Addresses {
			all = append(all, address.Ipv6Address)
		}
	}
	var addresses []string
	for _, address := range all {
		text := awssdk.ToString(address)
		if text != "" && len(text) <= maxNameBytes && len(addresses) < maxAddresses && !slices.Contains(addresses, text) {
			addresses = append(addresses, text)
		}
	}
	return addresses
}

func tagValue(i types.Instance, key string) string {
	for _, tag := range i.Tags {
		if awssdk.ToString(tag.Key) == key {
			return awssdk.ToString(tag.Value)
		}
	}
	return ""
}

// eachTag yields the tags of an instance.
func eachTag(i types.Instance) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, tag := range i.Tags {
			if !yield(awssdk.ToString(tag.Key), awssdk.ToString(tag.Value)) {
				return
			}
		}
	}
}

func isTerminated(i types.Instance) bool {
	return i.State != nil &&
		(i.State.Name == types.InstanceStateNameTerminated || i.State.Name == types.InstanceStateNameShuttingDown)
}

func stateOf(i types.Instance) (actuator.MachineState, bool) {
	if i.State == nil {
		return "", false
	}
	state, ok := map[types.InstanceStateName]actuator.MachineState{
		types.InstanceStateNamePending:  actuator.Starting,
		types.InstanceStateNameRunning:  actuator.Running,
		types.InstanceStateNameStopping: actuator.Stopping,
		types.InstanceStateNameStopped:  actuator.Stopped,
	}[i.State.Name]
	return state, ok
}

// maxBatchSize is the maximum number of machines in one call. EC2 recommends fewer than 1000. Large batches are
// necessary because StartInstances has the lowest rate limit of all calls, two per second.
const maxBatchSize = 900

// Start implements actuator.Actuator. If EC2 refuses some machines, the error lists them, and the other machines are
// started.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// Stop implements actuator.Actuator. If EC2 can never stop one of the given machines, such as the machine of a one-time
// spot request, no further machine of the cluster is stopped and the error contains EC2's message.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if err := a.RequireStopRights(ctx, t, ids); err != nil {
		return err
	}
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// RequireStopRights implements actuator.BatchActuator.
func (a *Actuator) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.requirePermissions(ctx, ids)
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.changePower(ctx, t, startInstances, clusters, func(ctx context.Context, c *accountClient, ids []string) error {
		_, err := c.api.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
		return err
	})
}

// StopAll implements actuator.BatchActuator.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.changePower(ctx, t, stopInstances, clusters, func(ctx context.Context, c *accountClient, ids []string) error {
		_, err := c.api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids}, withoutRetries)
		return err
	})
}

// RequireTerminateRights implements actuator.Terminator.
func (a *Actuator) RequireTerminateRights(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.requirePermission(ctx, terminateInstances, ids, func(ctx context.Context, ids []string) error {
		_, err := c.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids, DryRun: awssdk.Bool(true)})
		return err
	})
}

// TerminateAll implements actuator.Terminator.
func (a *Actuator) TerminateAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.changePower(ctx, t, terminateInstances, clusters, func(ctx context.Context, c *accountClient, ids []string) error {
		_, err := c.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}, withoutRetries)
		return err
	})
}

// maxPermissionRefusals limits the number of orders that are refused while changeClusters searches for the clusters
// with missing rights.
const maxPermissionRefusals = 20

// withoutRetries disables the SDK's retries for an order. Before a caller repeats an order, it must check that the
// order is still wanted.
func withoutRetries(o *ec2.Options) { o.Retryer = awssdk.NopRetryer{} }

// requirePermissions checks with dry runs that the caller may start and stop the machines. If EC2 refused a stop
// halfway, the cluster would remain partly stopped. If the right to start were missing, the cluster could not resume.
func (c *accountClient) requirePermissions(ctx context.Context, ids []string) error {
	dryRun := awssdk.Bool(true)
	for _, call := range []struct {
		operation string
		ask       func(context.Context, []string) error
	}{
		{stopInstances, func(ctx context.Context, ids []string) error {
			_, err := c.api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids, DryRun: dryRun})
			return err
		}},
		{startInstances, func(ctx context.Context, ids []string) error {
			_, err := c.api.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids, DryRun: dryRun})
			return err
		}},
	} {
		if err := c.requirePermission(ctx, call.operation, ids, call.ask); err != nil {
			return err
		}
	}
	return nil
}

// requirePermission checks one operation with dry runs.
func (c *accountClient) requirePermission(ctx context.Context, operation string, ids []string, ask func(context.Context, []string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelCalls)
	for batch := range slices.Chunk(ids, maxBatchSize) {
		group.Go(func() error {
			err := c.callWithTimeout(ctx, operation, func(ctx context.Context) error { return ask(ctx, batch) })
			// EC2 also reports a successful dry run as an error. Problems of single machines are detected when they
			// are stopped.
			if _, isOfMachine := errors.AsType[*machineRefusedError](err); isOfMachine {
				return nil
			}
			if e, ok := errors.AsType[*actuator.Error](err); ok && e.Class == actuator.PermissionDenied {
				return &actuator.Error{Class: e.Class, Message: e.Message + "; no machine is stopped without the rights to stop and to start all of them, and to terminate spot machines"}
			}
			return err
		})
	}
	return group.Wait()
}

// changePower starts, stops or terminates all machines, in calls for up to maxBatchSize machines. A cluster's error
// lists its refused machines.
func (a *Actuator) changePower(ctx context.Context, t actuator.Target, operation string, clusters [][]string, do func(context.Context, *accountClient, []string) error) []error {
	errs := make([]error, len(clusters))
	c, err := a.clientFor(ctx, t)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	var group errgroup.Group
	group.SetLimit(parallelCalls)
	for first := 0; first < len(clusters); {
		next := first + 1
		for size := len(clusters[first]); next < len(clusters) && size+len(clusters[next]) <= maxBatchSize; next++ {
			size += len(clusters[next])
		}
		batch := powerChange{
			operation: operation, do: func(ctx context.Context, ids []string) error { return do(ctx, c, ids) },
			clusters: clusters[first:next], errs: errs[first:next], refusals: new(maxPermissionRefusals),
		}
		group.Go(func() error {
			c.changeClusters(ctx, batch)
			return nil
		})
		first = next
	}
	_ = group.Wait() // Each cluster has its own error.
	return errs
}

// powerChange is one operation on whole clusters, with an error for each cluster.
type powerChange struct {
	operation string
	do        func(context.Context, []string) error
	clusters  [][]string
	errs      []error
	// refusals is the remaining number of refusals for missing rights. At 0, a refused call is no longer split, and all
	// its clusters count as refused. All parts of a powerChange share this number.
	refusals *int
}

func (p powerChange) part(from, to int) powerChange {
	p.clusters, p.errs = p.clusters[from:to], p.errs[from:to]
	return p
}

// changeClusters starts, stops or terminates the machines of clusters in one call. EC2 refuses the whole call if it
// refuses one machine, or if rights are missing, possibly for one cluster only. Each half of the clusters is then tried
// separately, down to single clusters. If the role cannot be assumed, the error concerns all clusters, and they are not
// split.
func (c *accountClient) changeClusters(ctx context.Context, p powerChange) {
	if len(p.clusters) == 1 {
		if p.errs[0] = c.changeCluster(ctx, p); actuator.ClassOf(p.errs[0]) == actuator.PermissionDenied {
			*p.refusals--
		}
		return
	}
	isOfRole := false
	err := c.callWithTimeout(ctx, p.operation, func(ctx context.Context) error {
		err := p.do(ctx, slices.Concat(p.clusters...))
		_, isOfRole = errors.AsType[*assumeRoleError](err)
		return err
	})
	_, isOfMachine := errors.AsType[*machineRefusedError](err)
	isDenied := actuator.ClassOf(err) == actuator.PermissionDenied && !isOfRole
	if isDenied {
		*p.refusals--
	}
	if mayBeOfOne := isOfMachine || isDenied && *p.refusals > 0; !mayBeOfOne {
		for i := range p.errs {
			p.errs[i] = err
		}
		return
	}
	middle := len(p.clusters) / 2
	c.changeClusters(ctx, p.part(0, middle))
	c.changeClusters(ctx, p.part(middle, len(p.clusters)))
}

// changeCluster starts, stops or terminates the machines of one cluster. The error lists the refused machines.
func (c *accountClient) changeCluster(ctx context.Context, p powerChange) error {
	refused := refusedMachines{}
	for batch := range slices.Chunk(p.clusters[0], maxBatchSize) {
		if err := c.changePowerOfBatch(ctx, p, batch, refused); err != nil {
			return err
		}
	}
	return refused.combinedError(p.operation)
}

// changePowerOfBatch starts, stops or terminates machines, and records in refused which ones EC2 refuses. It returns an
// error if no other machine should be tried.
func (c *accountClient) changePowerOfBatch(ctx context.Context, p powerChange, ids []string, refused refusedMachines) error {
	err := c.callWithTimeout(ctx, p.operation, func(ctx context.Context) error { return p.do(ctx, ids) })
	machine, ok := errors.AsType[*machineRefusedError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case p.operation == stopInstances && machine.class == actuator.Other:
		// If one machine can never be stopped, no further machine of its cluster is stopped, because a partly stopped
		// cluster is of no use.
		return actuator.Errorf(machine.class, "%s: %s for one of %s: %s", p.operation, machine.code, joinIDs(ids), machine.message)
	case p.operation == terminateInstances && machine.class == actuator.NotFound && len(ids) == 1:
		return nil // The machine is already terminated.
	case len(ids) == 1:
		refused[machine.code] = append(refused[machine.code], refusedMachine{id: ids[0], why: machine})
		return nil
	}
	// EC2 refuses a whole batch for one invalid machine. Each half is therefore tried separately, down to the refused
	// machines.
	middle := len(ids) / 2
	if err := c.changePowerOfBatch(ctx, p, ids[:middle], refused); err != nil {
		return err
	}
	return c.changePowerOfBatch(ctx, p, ids[middle:], refused)
}

// refusedMachines maps error codes to the machines that the cloud refused.
type refusedMachines map[string][]refusedMachine

type refusedMachine struct {
	id  string
	why *machineRefusedError
}

// combinedError returns one error for all refused machines, with the most urgent class. It returns nil if no machine
// was refused.
func (r refusedMachines) combinedError(operation string) error {
	if len(r) == 0 {
		return nil
	}
	var parts, ids []string
	urgent := actuator.WrongState
	// The message does not depend on the order of the calls. A condition shows the message, so each change would cause
	// a write.
	for _, code := range slices.Sorted(maps.Keys(r)) {
		machines := slices.SortedFunc(slices.Values(r[code]), func(a, b refusedMachine) int { return cmp.Compare(a.id, b.id) })
		if class := machines[0].why.class; urgencyOf(class) > urgencyOf(urgent) {
			urgent = class
		}
		var own []string
		for _, m := range machines {
			own = append(own, m.id)
		}
		ids = append(ids, own...)
		parts = append(parts, fmt.Sprintf("%s for %s: %s", code, joinIDs(own), machines[0].why.message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; "), RefusedIDs: ids}
}

// urgencyOf returns the rank of an error class that can concern single machines, and -1 for all other classes.
func urgencyOf(c actuator.ErrorClass) int {
	// A wrong state ranks last because it is temporary.
	return slices.Index([]actuator.ErrorClass{actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity}, c)
}

// joinIDs lists the first machines and counts the rest, to keep the message readable.
func joinIDs(ids []string) string {
	const shown = 20
	text := strings.Join(ids[:min(shown, len(ids))], ", ")
	if more := len(ids) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
