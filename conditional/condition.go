// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/logic"
)

// State says whether a condition holds: Unknown, False or True. It prints, and marshals, as that word.
type State = logic.State

// The three states of a condition. Unknown keeps whatever runs.
const (
	Unknown = logic.Unknown
	False   = logic.False
	True    = logic.True
)

// Status is one report of a condition: its State; a Reason, which is a CamelCase word; a Message for people; and an
// Identity, which names what the condition found. When the identity changes while the state is True, the group
// restarts.
type Status = logic.Status

// Condition says when a group shall run.
type Condition interface {
	// String names the condition; it is the default name of the group.
	String() string
	// Observe reports every change until ctx ends. It returns nil when ctx ended or when nothing can change any
	// more; after an error or a panic the group calls it again with a back-off.
	Observe(ctx context.Context, src Sources, report func(Status)) error
}

// Sources is what a condition may observe with: the API server of the group's manager.
type Sources struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	Logger     logr.Logger

	look              detect.Interest             // how kinds may be looked for, as the group's options say
	stopOnTerminating bool                        // a kind whose CRD is being deleted counts as absent
	terminating       func(kind string, now bool) // hears of CRDs that are being deleted; may be nil
}

// validator is a condition that can tell bad use before it is observed.
type validator interface{ validate(src Sources) error }
