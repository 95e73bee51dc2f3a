// SPDX-License-Identifier: Apache-2.0

// Package baremetal switches machines off and on through their management controllers, over Redfish or IPMI 2.0. A
// ClusterDeployment lists its cluster's machines. Each machine is called separately, so a controller that hangs does
// not delay other machines.
//
// Reading order: bmc_address.go (the addresses of controllers, and which are allowed) → credentials.go (the Secret) →
// power.go (the orders) → redfish.go, ipmi.go with ipmi_session.go (the protocols) → machine_results.go (the results
// of a cluster).
package baremetal

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	_ actuator.Actuator  = (*Actuator)(nil)
	_ actuator.Describer = (*Actuator)(nil)
)

const (
	// maxCachedControllers is the maximum number of controllers that are cached with their connections.
	maxCachedControllers = 4096
	// parallelVisits is the maximum number of a cluster's machines that are called concurrently. Only the largest
	// clusters have more machines.
	parallelVisits = 128
	// silentTimeout limits a visit to a controller that did not respond during the previous visit.
	silentTimeout = 2 * time.Second
)

// Options configures the access to controllers. The zero value is suitable for production.
type Options struct {
	// Endpoints contains the controllers that ClusterDeployments may refer to. Their messages are shown to users. If
	// empty, all controllers except link-local ones are allowed.
	Endpoints httpguard.Endpoints
	// VisitTimeout limits all calls to one controller for an observation or an order; 0 means 10 s.
	VisitTimeout time.Duration
	// resend is how long to wait for a response before a packet is sent again; 0 means resendAfter. Only tests that
	// drop packets set it.
	resend time.Duration
	// Clock measures how long ago a machine was ordered to shut down; nil means the system clock.
	Clock clock.PassiveClock
}

// Actuator switches machines off and on. It is safe for concurrent use.
type Actuator struct {
	options     Options
	controllers *lru.Cache
	stops       *onebyone.PendingStops

	mu sync.Mutex
	// silent contains the controllers that did not respond during the previous visit.
	silent map[string]bool
}

// New returns an Actuator; it does not call any controller.
func New(o Options) *Actuator {
	if o.VisitTimeout == 0 {
		o.VisitTimeout = 10 * time.Second
	}
	if o.resend == 0 {
		o.resend = resendAfter
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Actuator{
		options: o, controllers: lru.New(maxCachedControllers), silent: map[string]bool{},
		stops: &onebyone.PendingStops{Clock: o.Clock, Window: shutDownWindow},
	}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "baremetal" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the list in `spec.platform.baremetal.machines`", Stopped: "shut down, and off",
		Credentials: "names and passwords of the management controllers", Calls: "one or two calls for each machine over Redfish, or one session over IPMI",
		Errors: append(redfishErrors().Describe(), ipmiErrors().Describe()...),
	}
}

// Observe implements actuator.Actuator. A machine whose state cannot be read counts as Starting. If the state of no
// machine can be read, Observe returns an error.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	if t.InfraID == "" {
		return nil, actuator.Errorf(actuator.Other, "no machines are listed: set spec.platform.baremetal.machines")
	}
	machines := make([]actuator.Machine, len(t.Machines))
	errs := a.visitAll(t, namesOf(t), func(i int, c visitor) error {
		seen, err := c.visit(ctx, func(actuator.MachineState) (powerOrder, error) { return noOrder, nil })
		machines[i] = actuator.Machine{ID: t.Machines[i].Name, State: a.stops.EffectiveState(c.key, seen)}
		return err
	})
	for i, err := range errs {
		if err != nil {
			machines[i] = actuator.Machine{ID: t.Machines[i].Name, State: actuator.Starting, Note: messageOf(err)}
		}
	}
	for i := range machines {
		machines[i].Role = actuator.FindRole(nil, "", machines[i].ID)
	}
	if err := combineErrors("observe machines", namesOf(t), errs); ctx.Err() != nil || err != nil && !slices.Contains(errs, nil) {
		return nil, cmp.Or(ctx.Err(), err)
	}
	slices.SortFunc(machines, func(x, y actuator.Machine) int { return cmp.Compare(x.ID, y.ID) })
	return machines, nil
}

// Stop implements actuator.Actuator. Machines are shut down, and their power is cut if they still run after five
// minutes.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	return a.orderAll(ctx, "stop machines", t, ids, func(c visitor) error {
		given, err := c.order(ctx, func(seen actuator.MachineState) (powerOrder, error) { return chooseStop(seen, a.stops.Age(c.key)) })
		if err == nil && given != noOrder {
			a.stops.Remember(c.key)
		}
		return err
	})
}

// Start implements actuator.Actuator.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.orderAll(ctx, "start machines", t, ids, func(c visitor) error {
		_, err := c.visit(ctx, func(seen actuator.MachineState) (powerOrder, error) {
			return chooseStart(seen, a.stops.IsPending(c.key))
		})
		if err == nil {
			a.stops.ForgetMachine(c.key)
		}
		return err
	})
}

func (a *Actuator) orderAll(ctx context.Context, operation string, t actuator.Target, ids []string, do func(visitor) error) error {
	errs := a.visitAll(t, ids, func(_ int, c visitor) error { return do(c) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return combineErrors(operation, ids, errs)
}

func namesOf(t actuator.Target) []string {
	var names []string
	for _, m := range t.Machines {
		names = append(names, m.Name)
	}
	return names
}

// visitAll calls do for each machine concurrently, and returns an error for each machine.
func (a *Actuator) visitAll(t actuator.Target, ids []string, do func(int, visitor) error) []error {
	var work errgroup.Group
	work.SetLimit(parallelVisits)
	errs := make([]error, len(ids))
	for i, id := range ids {
		work.Go(func() error {
			c, err := a.visitorOf(t, id)
			if err == nil {
				err = do(i, c)
			}
			errs[i] = err
			return nil
		})
	}
	_ = work.Wait() // Each machine has its own error.
	return errs
}

// visitor is a controller with its cache key and the timeout of its visits.
type visitor struct {
	managementController
	key     string
	timeout time.Duration
	note    func(isSilent bool)
}

// visit implements managementController.
func (v visitor) visit(ctx context.Context, choose func(actuator.MachineState) (powerOrder, error)) (actuator.MachineState, error) {
	limited, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	seen, err := v.managementController.visit(limited, choose)
	if ctx.Err() != nil {
		return "", ctx.Err() // The caller ended the visit, so the error does not describe the controller.
	}
	_, isSilent := errors.AsType[*silenceError](err)
	v.note(isSilent)
	return seen, err
}

// order sends the order that choose returns, and returns that order. If the controller refuses the order because the
// power has changed in the meantime, choose is called again.
func (v visitor) order(ctx context.Context, choose func(actuator.MachineState) (powerOrder, error)) (given powerOrder, err error) {
	for range 2 {
		given = noOrder
		_, err = v.visit(ctx, func(seen actuator.MachineState) (order powerOrder, err error) {
			given, err = choose(seen)
			return given, err
		})
		if given == noOrder || actuator.ClassOf(err) != actuator.WrongState || err == nil {
			break
		}
	}
	return given, err
}

// visitorOf returns a machine's controller. If the login in the Secret changes, a new controller is created.
func (a *Actuator) visitorOf(t actuator.Target, id string) (visitor, error) {
	i := slices.IndexFunc(t.Machines, func(m actuator.ListedMachine) bool { return m.Name == id })
	if i < 0 {
		return visitor{}, &actuator.Error{Class: actuator.NotFound, Message: "the machine is not listed"}
	}
	address, err := parseAddress(t.Machines[i].Address)
	if err != nil {
		return visitor{}, err
	}
	if err := a.options.allowAddress(address); err != nil {
		return visitor{}, err
	}
	l, err := readLogin(t.Credentials, id, address)
	if err != nil {
		return visitor{}, err
	}
	v := visitor{key: cloudrest.HashFields(t.Machines[i].Address, l.user, l.password, l.rootsPEM)}
	v.note = func(isSilent bool) { a.noteSilence(v.key, isSilent) }
	a.mu.Lock()
	defer a.mu.Unlock()
	v.timeout = a.options.VisitTimeout
	if a.silent[v.key] {
		v.timeout = min(v.timeout, silentTimeout)
	}
	if known, ok := a.controllers.Get(v.key); ok {
		v.managementController, _ = known.(managementController)
		return v, nil
	}
	v.managementController = a.newController(address, l)
	a.controllers.Add(v.key, v.managementController)
	return v, nil
}

func (a *Actuator) noteSilence(key string, isSilent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.silent, key)
	if isSilent && len(a.silent) < maxCachedControllers {
		a.silent[key] = true
	}
}

func (a *Actuator) newController(address bmcAddress, l login) managementController {
	if address.isIPMI {
		dialer := &net.Dialer{Timeout: dialTimeout, Control: a.options.Endpoints.ControlDial}
		return &ipmiController{hostPort: address.hostPort, login: l, dialer: dialer, resend: a.options.resend, suites: cipherSuites(), visits: semaphore.NewWeighted(1)}
	}
	c := newRedfishController(address, l, a.options.Endpoints)
	c.isTrusted = a.options.isTrusted(address)
	return c
}
