// SPDX-License-Identifier: Apache-2.0

package targetcalls

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
)

// errPanicked is the error of a job that panics. Without the recovery, one bad input would crash the manager after
// each restart.
var errPanicked = errors.New("the attempt ended with a panic, which is a bug in Torpor; see the manager's log")

// RecoverPanic turns a panic into the job's error and logs it. The function of a job defers it.
func RecoverPanic(ctx context.Context, err *error) {
	if what := recover(); what != nil {
		log.FromContext(ctx).Error(fmt.Errorf("panic: %v", what), "A job has panicked", "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// DescribeError describes why a call of the cluster failed, in a text that does not differ between attempts.
func DescribeError(err error) string {
	if errors.Is(err, errPanicked) {
		return errPanicked.Error()
	}
	return targetcluster.DescribeError(err)
}
