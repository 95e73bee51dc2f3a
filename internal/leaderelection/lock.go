// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errActs prevents a release before the controllers have ended. client-go also releases a Lease that was not renewed in
// time.
var errActs = errors.New("expected the controllers to end before their Lease is released, found them running")

// lock is a Lease of the election. It differs from client-go's LeaseLock in the annotations of the Lease, in the rule
// when the Lease may be released, and in the number of renewals.
type lock struct {
	election *Election
	// part is nil for the Lease of earlier releases.
	part           *Part
	name, identity string
	// last is the Lease as it was last read or written.
	last *coordinationv1.Lease
	// renewed is the time of the last renewal that was sent since the Lease was read.
	renewed time.Time
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found := &coordinationv1.Lease{}
	if err := l.election.Reader.Get(ctx, client.ObjectKey{Namespace: l.election.Namespace, Name: l.name}, found); err != nil {
		return nil, nil, fmt.Errorf("read the Lease %s: %w", l.Describe(), err)
	}
	l.last, l.renewed = found, time.Time{}
	l.noteHolder(found)
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec)
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the record of the Lease %s: %w", l.Describe(), err)
	}
	return record, raw, nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	made := &coordinationv1.Lease{}
	made.Namespace, made.Name = l.election.Namespace, l.name
	return l.write(ctx, made, record, func(ctx context.Context) error { return l.election.Client.Create(ctx, made) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.last == nil {
		return fmt.Errorf("expected the Lease %s to be read before its update", l.Describe())
	}
	if l.isRecentlyRenewed(record) {
		return nil
	}
	if holder := l.last.Spec.HolderIdentity; l.part == nil && holder != nil && *holder == l.identity && record.HolderIdentity == l.identity {
		return l.renewShared(ctx, record)
	}
	changed := l.last.DeepCopy()
	return l.write(ctx, changed, record, func(ctx context.Context) error { return l.election.Client.Update(ctx, changed) })
}

// isRecentlyRenewed reports whether a renewal can be skipped. It cannot be skipped if the clock was set back.
func (l *lock) isRecentlyRenewed(record resourcelock.LeaderElectionRecord) bool {
	age := record.RenewTime.Sub(l.renewed)
	return record.HolderIdentity == l.identity && age >= 0 && age < renewInterval
}

// renewShared renews the Lease of earlier releases, unless its holder has changed. Several managers renew it at the same
// time, so an update with a resource version would often conflict.
func (l *lock) renewShared(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch, err := json.Marshal([]operation{
		{"test", "/spec/holderIdentity", l.identity}, {"replace", "/spec/renewTime", metav1.NewMicroTime(record.RenewTime.Time)},
	})
	if err != nil {
		return fmt.Errorf("encode the renewal of the Lease %s: %w", l.Describe(), err)
	}
	renewed := l.last.DeepCopy()
	if err := l.election.Client.Patch(ctx, renewed, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("renew the Lease %s: %w", l.Describe(), err)
	}
	l.last, l.renewed = renewed, record.RenewTime.Time
	return nil
}

// write writes the record and the annotations.
func (l *lock) write(ctx context.Context, to *coordinationv1.Lease, record resourcelock.LeaderElectionRecord, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	to.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if l.part != nil {
		isReleased := record.HolderIdentity == ""
		if isReleased && l.part.isActing() && !l.election.hasEnded.Load() {
			return errActs
		}
		l.part.annotate(to, isReleased)
	}
	if err := send(ctx); err != nil {
		return fmt.Errorf("write the Lease %s: %w", l.Describe(), err)
	}
	l.last, l.renewed = to, record.RenewTime.Time
	return nil
}

// noteHolder records which replica holds the Lease, for the status of the parts.
func (l *lock) noteHolder(found *coordinationv1.Lease) {
	holder := found.Spec.HolderIdentity
	switch {
	case holder == nil || *holder == "" || *holder == l.identity:
	case l.part != nil:
		l.part.noteLeader(found)
	default:
		for _, p := range l.election.parts {
			p.noteOlder(*holder)
		}
	}
}

// RecordEvent implements resourcelock.Interface.
func (l *lock) RecordEvent(text string) {
	if l.last != nil {
		l.election.Recorder.Eventf(l.last, nil, corev1.EventTypeNormal, "LeaderElection", "Lead", "%s %s", l.identity, text)
	}
}

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return l.election.Namespace + "/" + l.name }

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.identity }
