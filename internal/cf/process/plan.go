// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// Plan is what Decide wants: at most one effect, and what to report.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the effect.
	Do Action
	// Ready and Draining are the owned conditions, both in every plan.
	Ready, Draining decision.Condition
	// After is when to look again; zero waits for an event.
	After time.Duration
}

// Action is one effect on the world. The set is closed. Every action may be repeated, and is not waited for.
//
//sumtype:decl
type Action interface{ isAction() }

// Nothing leaves the world as it is.
type Nothing struct{}

// CreateLRP creates the LRP of the current revision. One that exists by then is an error for the backoff.
type CreateLRP struct {
	Name      string
	Revision  int64
	Instances int32
}

// ScaleLRP sets the instances of an LRP and nothing else, so that its image stays what it is.
type ScaleLRP struct {
	Name      string
	Instances int32
}

// DeleteLRPs deletes LRPs, each under the condition that it is the object that was observed. The controller reads the app
// past its cache first and does nothing if the revision or the state differ from what was decided on.
type DeleteLRPs struct{ Names []string }

func (Nothing) isAction()    {}
func (CreateLRP) isAction()  {}
func (ScaleLRP) isAction()   {}
func (DeleteLRPs) isAction() {}
