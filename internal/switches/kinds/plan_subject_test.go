// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"errors"
	"slices"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestJudgeRead has the errors of reads of related objects. The plan fails if it needs an object that could not be
// read.
func TestJudgeRead(t *testing.T) {
	t.Parallel()
	backups := schema.GroupResource{Group: "moco.cybozu.com", Resource: "backuppolicies"}
	missing, forbidden := k8serrors.NewNotFound(backups, "daily"), k8serrors.NewForbidden(backups, "daily", nil)
	notServed := k8serrors.NewNotFound(backups, "daily")
	notServed.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}
	for name, row := range map[string]struct {
		needed Related
		err    error
		fails  bool
		unread []string
	}{
		"a read without an error: the plan continues":                      {Related{}, nil, false, nil},
		"an object that does not exist: the plan continues":                {Related{}, missing, false, nil},
		"required kind not served: the plan fails":                         {Related{}, notServed, true, nil},
		"optional kind not served: the plan continues":                     {Related{IsOptional: true}, notServed, false, nil},
		"no right to read: the plan fails":                                 {Related{}, forbidden, true, nil},
		"no right to read, with a remark: the remark replaces the failure": {Related{Unread: "unknown"}, forbidden, false, []string{"unknown"}},
		"another error, with a remark: the plan fails":                     {Related{Unread: "unknown", IsOptional: true}, errors.New("timeout"), true, nil},
	} {
		subject := PlanSubject{}
		err := subject.JudgeRead(row.needed, row.err)
		if fails := err != nil; fails != row.fails || !slices.Equal(subject.Unread, row.unread) {
			t.Errorf("%s: expected failure %t and %q, found %v and %q", name, row.fails, row.unread, err, subject.Unread)
		}
	}
}
