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

// errPanicked is the error of a job that panics. An input from one cluster or set must not end the manager, and
// end it again after each restart.
var errPanicked = errors.New("the attempt ended with a panic, which is a defect of Torpor; see the manager's log")

// RecoverPanic is deferred by a job's function. It turns a panic into the job's error, and logs it.
func RecoverPanic(ctx context.Context, err *error) {
	if what := recover(); what != nil {
		log.FromContext(ctx).Error(fmt.Errorf("panic: %v", what), "A job has panicked", "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// DescribeError describes in stable text why a job got no answer.
func DescribeError(err error) string {
	if errors.Is(err, errPanicked) {
		return errPanicked.Error()
	}
	return targetcluster.DescribeError(err)
}
