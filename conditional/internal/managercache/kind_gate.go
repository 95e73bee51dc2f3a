// SPDX-License-Identifier: Apache-2.0

package managercache

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// kindGate is the last state of a kind that groups wait for.
type kindGate struct {
	absent     bool
	lastServed detect.Verdict // when it was served last
}

// NoteVerdicts takes the detector's verdicts on kinds that a group waits for. When one of them is gone, or is another one
// now, the mapper is refreshed, and the informers that only reads have made are removed: they would list a kind that is
// gone for ever. The client is refreshed only when the kind is at another place: a client that reads its own writes leaves
// handlers behind.
func (c *Cache) NoteVerdicts(ctx context.Context, kinds []schema.GroupVersionKind, verdicts []detect.Verdict) error {
	// The manager was made without ManagerOptions.
	if c == nil {
		return nil
	}
	var left []client.Object
	var moved, elsewhere bool
	c.mu.Lock()
	for i, gvk := range kinds {
		g := c.gates[gvk]
		if g == nil {
			g = &kindGate{}
			c.gates[gvk] = g
		}
		m, e := g.noteVerdict(verdicts[i])
		if m {
			left = append(left, c.forgetReadsLocked(gvk)...)
		}
		moved, elsewhere = moved || m, elsewhere || e
	}
	c.mu.Unlock()
	var errs []error
	if moved && c.mapper != nil {
		errs = append(errs, c.mapper.Refresh())
	}
	if elsewhere {
		errs = append(errs, c.client.Refresh())
	}
	if len(left) > 0 {
		go c.removeInformers(context.WithoutCancel(ctx), left) // RemoveInformer may wait for a request of discovery, and the detector must not.
	}
	return errors.Join(errs...)
}

// noteVerdict reports whether the kind is no longer what it was, and whether it is found at another place.
func (g *kindGate) noteVerdict(v detect.Verdict) (moved, elsewhere bool) {
	switch v.Presence {
	case detect.Served:
		known := g.lastServed.Presence == detect.Served
		moved = known && !g.absent && g.lastServed.Identity != v.Identity
		// A CRD that was only replaced has another identity at the same place, and the client still finds it.
		elsewhere = known && (g.lastServed.Plural != v.Plural || g.lastServed.Namespaced != v.Namespaced)
		g.absent, g.lastServed = false, v
	case detect.Absent:
		moved = !g.absent
		g.absent = true
	case detect.Unclear:
	}
	return moved, elsewhere
}

// forgetReadsLocked returns an object of each form in which the kind was only read.
func (c *Cache) forgetReadsLocked(gvk schema.GroupVersionKind) (left []client.Object) {
	for _, form := range []informers.ObjectForm{informers.Typed, informers.Unstructured, informers.Metadata} {
		kind := informers.InformerKind{GVK: gvk, Form: form}
		if !c.readOnly[kind] {
			continue
		}
		delete(c.readOnly, kind)
		if obj, err := kind.NewObject(c.scheme); err == nil {
			left = append(left, obj)
		}
	}
	return left
}

func (c *Cache) removeInformers(ctx context.Context, left []client.Object) {
	for _, obj := range left {
		_ = c.RemoveInformer(ctx, obj) // It fails only for a type without a kind, and this kind has been read.
	}
}
