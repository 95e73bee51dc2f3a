// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/extra"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

// Reasons of the condition, in addition to conditional.ElsewhereReason.
const (
	leadsReason = "Leads"
	// waitingReason means that no replica with the same scope is known to lead the part.
	waitingReason = "Waiting"
)

// Part is a set of controllers that one replica leads. It is a conditional.Condition that becomes True when this
// replica may act. It does not become False again: a replica that loses the Lease exits.
type Part struct {
	extra.Reported

	election *Election
	part     string
	scope    lease.Scope

	mu sync.Mutex
	// failure is the reason why this replica is not ready.
	failure error
	seen    lease.Sightings
}

func newPart(e *Election, part string, scope lease.Scope) *Part {
	p := &Part{election: e, part: part, scope: scope, seen: lease.Sightings{}}
	p.Name = "Part-" + part
	p.Report(conditional.Status{State: conditional.False, Reason: waitingReason, Message: "this replica has not read the Leases of the part " + part + " yet"})
	return p
}

// lead holds the Lease of the part until ctx ends. It returns an error if the Lease was not renewed in time.
func (p *Part) lead(ctx context.Context) error {
	for p.awaitOthers(ctx) {
		attempt, yield := context.WithCancel(ctx)
		l := &lock{election: p.election, part: p, name: p.leaseName(), identity: p.election.Identity}
		err := l.hold(attempt, true, func(ctx context.Context) { p.decide(ctx, yield) })
		yield()
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitOthers waits until no manager with a common namespace holds another Lease of the part. It returns false if ctx
// ended before. This avoids acquisitions that end with a release; it decides nothing.
func (p *Part) awaitOthers(ctx context.Context) bool {
	own := lease.Contender{Name: p.leaseName(), Namespaces: p.scope.Namespaces, AcquiredAt: p.election.Clock.Now()}
	for ctx.Err() == nil {
		held, err := p.list(ctx)
		if err == nil {
			_, other := lease.DecideOverlap(own, held.contenders())
			if other == nil {
				return true
			}
			p.waitFor(held[other.Name])
		}
		p.pause(ctx)
	}
	return false
}

// decide starts the controllers, or calls yield to release the Lease. It is called after the Lease was acquired.
func (p *Part) decide(ctx context.Context, yield func()) {
	p.election.markLeads()
	select {
	case <-ctx.Done():
		return
	case <-p.election.alone:
	}
	for ctx.Err() == nil {
		held, err := p.list(ctx)
		own := held[p.leaseName()]
		if err != nil || own == nil || *own.Spec.HolderIdentity != p.election.Identity {
			p.pause(ctx)
			continue
		}
		verdict, other := lease.DecideOverlap(lease.NewContender(own), held.contenders())
		switch verdict {
		case lease.Act:
			p.note(conditional.Status{State: conditional.True, Reason: leadsReason}, nil)
			return
		case lease.Yield:
			p.waitFor(held[other.Name])
			yield()
			return
		case lease.Wait:
			p.waitFor(held[other.Name])
			p.pause(ctx)
		}
	}
}

// heldLeases are the Leases of a part that are held, by name.
type heldLeases map[string]*coordinationv1.Lease

func (h heldLeases) contenders() []lease.Contender {
	var all []lease.Contender
	for _, l := range h {
		all = append(all, lease.NewContender(l))
	}
	return all
}

// list reads the Leases of the part that are held. The API server returns all Leases that were written before the call.
func (p *Part) list(ctx context.Context) (heldLeases, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, all := p.election, &coordinationv1.LeaseList{}
	err := e.Reader.List(call, all, client.InNamespace(e.Namespace), client.MatchingLabels{torporv1alpha1.PartLabel: p.part})
	if err != nil {
		err = fmt.Errorf("list the Leases of the part %s in the namespace %s: %w", p.part, e.Namespace, err)
		if ctx.Err() == nil {
			p.note(conditional.Status{State: conditional.False, Reason: waitingReason, Message: err.Error()}, err)
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held, now := heldLeases{}, e.Clock.Now()
	for i := range all.Items {
		if l := &all.Items[i]; p.seen.IsHeld(l, now) {
			held[l.Name] = l
		}
	}
	return held, nil
}

func (p *Part) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.election.Clock.After(retryPeriod):
	}
}

// waitFor records that a manager with a common namespace leads the part.
func (p *Part) waitFor(other *coordinationv1.Lease) {
	leader := lease.ReadLeader(other, p.election.Clock.Now())
	message := fmt.Sprintf("%s leads the part %s in common namespaces", leader.Name(), p.part)
	p.note(conditional.Status{State: conditional.False, Reason: waitingReason, Message: message}, errorOf(leader.DescribeOverlap(p.scope)))
}

// noteLeader records that another replica holds the Lease.
func (p *Part) noteLeader(held *coordinationv1.Lease) {
	leader := lease.ReadLeader(held, p.election.Clock.Now())
	status := conditional.Status{State: conditional.False, Reason: conditional.ElsewhereReason, Message: fmt.Sprintf("%s leads the part %s", leader.Name(), p.part)}
	split := leader.DescribeSplit(p.scope)
	if split != "" {
		status.Reason = waitingReason
	}
	p.note(status, errorOf(split))
}

// noteOlder records that a manager of an earlier release leads all controllers.
func (p *Part) noteOlder(holder string) {
	p.note(conditional.Status{
		State: conditional.False, Reason: conditional.ElsewhereReason,
		Message: fmt.Sprintf("a manager of an earlier release, %s, leads all controllers by the Lease %s/%s", lease.FindPod(holder), p.election.Namespace, olderName),
	}, nil)
}

// note records the status and the readiness, unless this replica acts.
func (p *Part) note(status conditional.Status, failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isActing() {
		return
	}
	p.failure = failure
	if p.Report(status) {
		p.election.Log.Info("The leadership of a part has changed", "part", p.part, "leads", status.State == conditional.True, "reason", status.Reason, "why", status.Message)
	}
}

func (p *Part) isActing() bool { return p.Status().State == conditional.True }

// annotate writes the label and the annotations of the Lease.
func (p *Part) annotate(l *coordinationv1.Lease, isReleased bool) {
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[torporv1alpha1.PartLabel] = p.part
	p.scope.Write(l)
	if l.Annotations[torporv1alpha1.ManagerActsAnnotation] = "true"; isReleased || !p.isActing() {
		delete(l.Annotations, torporv1alpha1.ManagerActsAnnotation)
	}
}

func (p *Part) leaseName() string { return lease.NamePart(p.part, p.scope.Namespaces) }

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// CheckScopes is a readiness check. It fails while the Leases cannot be read, and while a part waits for a manager of
// another Deployment, unless that manager handles the same controllers and namespaces. Replicas of one Deployment are
// ready, so that its rollout continues.
func (e *Election) CheckScopes(*http.Request) error {
	var errs []error
	for _, p := range e.parts {
		p.mu.Lock()
		errs = append(errs, p.failure)
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}
