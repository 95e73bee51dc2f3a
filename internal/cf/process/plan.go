// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// Plan is the result of Decide: at most one action, and the conditions to report.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the action.
	Do Action
	// Ready and Draining are the conditions that the controller owns. Every plan has both.
	Ready, Draining decision.Condition
	// After is the time until the next reconciliation. If it is 0, only an event triggers it.
	After time.Duration
}

// Action is a change in Kubernetes. Only the types in this file implement it. Every action can be repeated. The
// controller does not wait for its completion.
//
//sumtype:decl
type Action interface{ isAction() }

// Nothing makes no change.
type Nothing struct{}

// CreateLRP creates the LRP of the target revision. If the LRP already exists, the observation is stale, and the
// process is reconciled again soon.
type CreateLRP struct {
	Name      string
	Revision  int64
	Instances int32
}

// ScaleLRP changes only the number of instances of an LRP, so its image stays the same.
type ScaleLRP struct {
	Name      string
	Instances int32
}

// DeleteLRPs deletes LRPs, each only if its UID is the observed one. The controller first reads the app from the API
// server, and does nothing if the app's revision or state differs from the observation.
type DeleteLRPs struct{ Names []string }

func (Nothing) isAction()    {}
func (CreateLRP) isAction()  {}
func (ScaleLRP) isAction()   {}
func (DeleteLRPs) isAction() {}
