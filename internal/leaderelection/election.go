// SPDX-License-Identifier: Apache-2.0

// Package leaderelection lets the managers of an installation lead the parts of its controllers separately. Each part
// has a separate Lease in the namespace of the installation. Managers for different namespaces have different Leases of
// a part. Managers with a common namespace never lead the same part at the same time.
package leaderelection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

// The durations are longer than controller-runtime's defaults, because a manager renews several Leases. client-go renews
// a held Lease in each retryPeriod. The lock sends a renewal only if the last one is older than renewInterval.
//
// Invariant: renewInterval + retryPeriod + renewDeadline < leaseDuration. client-go gives up renewDeadline after its
// first failed attempt, which follows the last skipped renewal by retryPeriod, so the process ends before the Lease
// expires.
const (
	leaseDuration = 45 * time.Second
	renewDeadline = 15 * time.Second
	retryPeriod   = 5 * time.Second
	// renewInterval is just below a multiple of retryPeriod, so that a Lease is renewed every 25 s.
	renewInterval = 24 * time.Second
	// callTimeout is shorter than renewDeadline, so that one request without a response does not end the manager.
	callTimeout = 5 * time.Second
)

const (
	// olderName is the name of the Lease by which managers of earlier releases lead all controllers.
	olderName = "torpor-manager"
	// sharedIdentity is the holder identity with which all managers of this release hold the Lease olderName together.
	// A manager of an earlier release therefore waits for all of them.
	sharedIdentity = "torpor-parts"
)

// Options are the options of an election.
type Options struct {
	// Reader reads from the API server without a cache, and Client writes to it.
	Reader client.Reader
	Client client.Client
	// Recorder records events about the Leases.
	Recorder events.EventRecorder
	// Namespace is the namespace of the installation.
	Namespace string
	// Identity is unique to this process, and begins with the name of its Pod.
	Identity string
	// Scope describes what the manager handles, without its controllers.
	Scope lease.Scope
	Clock clock.Clock
	Log   logr.Logger
}

// Election holds the Leases of the parts that a manager leads.
type Election struct {
	Options

	parts []*Part
	// leads is closed when the manager holds the Lease of a part for the first time, and alone when no manager of an
	// earlier release leads.
	leads, alone         chan struct{}
	markLeads, markAlone func()
	// hasEnded is true after all controllers have ended.
	hasEnded atomic.Bool
}

// New returns the election of the parts. parts maps the name of each part to its controllers.
func New(o Options, parts map[string][]string) *Election {
	e := &Election{Options: o, leads: make(chan struct{}), alone: make(chan struct{})}
	e.markLeads = sync.OnceFunc(func() { close(e.leads) })
	e.markAlone = sync.OnceFunc(func() { close(e.alone) })
	for name, controllers := range parts {
		scope := o.Scope
		scope.Controllers = controllers
		e.parts = append(e.parts, newPart(e, name, scope))
	}
	slices.SortFunc(e.parts, func(a, b *Part) int { return strings.Compare(a.part, b.part) })
	return e
}

// Leads returns a channel that is closed when this manager leads a part.
func (e *Election) Leads() <-chan struct{} { return e.leads }

// Part returns the part with a name; nil if the manager does not have it.
func (e *Election) Part(name string) *Part {
	for _, p := range e.parts {
		if p.part == name {
			return p
		}
	}
	return nil
}

// Run holds the Leases while run runs. It releases them after run has returned without an error, because its controllers
// have ended then. If a Lease that this manager holds was not renewed in time, Run cancels the context of run and
// returns an error without waiting for the end of run: the process must exit before the Lease expires.
func (e *Election) Run(ctx context.Context, run func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	leading, end := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), e.Log))
	defer end()
	lost := make(chan error, len(e.parts)+1) // Has room for all senders, so none blocks after Run has returned.
	var electors sync.WaitGroup
	for _, p := range e.parts {
		electors.Go(func() { lost <- p.lead(leading) })
	}
	electors.Go(func() { lost <- e.precede(leading) })
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	select {
	case err := <-lost:
		return err
	case err := <-ended:
		e.hasEnded.Store(err == nil)
		end()
		electors.Wait()
		return err
	}
}

// precede holds the Lease of earlier releases from the time at which this manager leads a part. It does not release the
// Lease, because other managers of this release hold it too.
func (e *Election) precede(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.leads:
	}
	l := &lock{election: e, name: olderName, identity: sharedIdentity}
	return l.hold(ctx, false, func(context.Context) { e.markAlone() })
}

// hold acquires and renews the Lease until ctx ends. It returns an error if the Lease was not renewed in time.
func (l *lock) hold(ctx context.Context, releases bool, begin func(context.Context)) error {
	config := leaderelection.LeaderElectionConfig{
		Lock: l, Name: l.name, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: releases,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: begin, OnStoppedLeading: func() {}},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return fmt.Errorf("elect the holder of the Lease %s: %w", l.Describe(), err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return fmt.Errorf("the Lease %s was not renewed within %s: another replica may hold it; this process ends", l.Describe(), config.RenewDeadline)
	}
	return nil
}
