// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestNoResultsAreAnEmptyList uses a selector that matches nothing.
func TestNoResultsAreAnEmptyList(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": "[]\n", "yaml": "[]\n"} {
		var out testenv.LogBuffer
		a := &commands{Streams: Streams{Out: &out, Err: io.Discard}, clock: clocktesting.NewFakePassiveClock(time.Now())}
		root := a.newRootCommand()
		a.connect = func() (*kubeClient, error) { return &kubeClient{WithWatch: noApps{}, namespace: "ns"}, nil }
		root.SetArgs([]string{"stop", "cfapp", "-l", "team=nobody", "-o", format})
		if err := root.ExecuteContext(t.Context()); exit.CodeOf(err) != exit.Done || out.String() != want {
			t.Errorf("%s: expected %q, found %q and %v", format, want, out.String(), fmt.Sprint(err))
		}
	}
}

// noApps is a client of an API server without objects.
type noApps struct{ client.WithWatch }

// List implements client.Reader.
func (noApps) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
