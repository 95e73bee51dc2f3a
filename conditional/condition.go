// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// State says whether a condition holds.
type State int8

// The three states of a condition. Unknown keeps whatever runs.
const (
	Unknown State = iota
	False
	True
)

// String returns "Unknown", "False" or "True".
func (s State) String() string {
	switch s {
	case False:
		return "False"
	case True:
		return "True"
	case Unknown:
		return "Unknown"
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// MarshalText writes the state as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is one report of a condition.
type Status struct {
	State State `json:"state"`
	// Reason is a CamelCase word, Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Identity names what the condition found. When it changes while the state is True, the group restarts.
	Identity string `json:"identity,omitempty"`
}

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
}

// validator is a condition that can tell bad use before it is observed.
type validator interface{ validate(src Sources) error }
