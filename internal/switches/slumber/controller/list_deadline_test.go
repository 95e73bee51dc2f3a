// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// silentAPI does not answer a list before its context ends.
type silentAPI struct{ client.Reader }

// List implements client.Reader.
func (silentAPI) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAListWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		_, _, err := listObjects(t.Context(), silentAPI{}, kinds.ListOwn()[0], "prod")
		if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took != reconcile.APITimeout {
			t.Errorf("expected the list to end after %s with an error of its deadline, found that it took %s, with the error %v", reconcile.APITimeout, took, err)
		}
	})
}
