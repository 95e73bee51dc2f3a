// SPDX-License-Identifier: Apache-2.0

package targetcalls

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestAPanicEndsItsJobAlone runs one job that panics and one that succeeds.
func TestAPanicEndsItsJobAlone(t *testing.T) {
	said := ""
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { said += args }, funcr.Options{}))
	do := func(ctx context.Context, job func()) (err error) {
		defer RecoverPanic(ctx, &err)
		job()
		return nil
	}
	var none map[string]int
	err := do(ctx, func() { none["a"] = 1 })
	if err == nil || !strings.Contains(DescribeError(err), "a bug in Torpor") {
		t.Fatalf("expected an error that names a defect, found %v", err)
	}
	for _, want := range []string{"assignment to entry in nil map", "panics_test.go"} {
		if !strings.Contains(said, want) {
			t.Errorf("expected %q in the log, found %s", want, said)
		}
	}
	if err := do(ctx, func() {}); err != nil {
		t.Errorf("expected no error, found %v", err)
	}
}
