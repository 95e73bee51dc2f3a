// SPDX-License-Identifier: Apache-2.0

package clusterjobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
)

// errPanicked is how a job ends that panics: what one cluster or set brings about must not end the manager, and again after each start.
var errPanicked = errors.New("the attempt ended with a panic, which is a defect of Torpor; the manager's log says where")

// RecoverPanic is deferred by what does a job. It makes a panic the job's error, and logs it.
func RecoverPanic(ctx context.Context, err *error) {
	if what := recover(); what != nil {
		log.FromContext(ctx).Error(fmt.Errorf("panic: %v", what), "A job has panicked", "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// DescribeError says in stable words why a job got no answer.
func DescribeError(err error) string {
	if errors.Is(err, errPanicked) {
		return errPanicked.Error()
	}
	return targetcluster.DescribeError(err)
}
