// SPDX-License-Identifier: Apache-2.0

package korifihandover

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
)

// oneBinding is an API server that returns the same RoleBinding for every name, and accepts no writes.
type oneBinding struct {
	client.Client
	found rbacv1.RoleBinding
}

// Get implements client.Reader.
func (o oneBinding) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	binding, isOfKind := into.(*rbacv1.RoleBinding)
	if !isOfKind {
		return fmt.Errorf("expected a RoleBinding, found %T", into)
	}
	o.found.DeepCopyInto(binding)
	binding.Namespace, binding.Name = key.Namespace, key.Name
	return nil
}

// TestExistingRoleBindingMustGrantTheSameRole uses an existing RoleBinding with the name of the RoleBinding that Torpor
// needs.
func TestExistingRoleBindingMustGrantTheSameRole(t *testing.T) {
	t.Parallel()
	alice, bob := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob"}
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "developers"}, Subjects: []rbacv1.Subject{alice},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "korifi-controllers-space-developer"},
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-space-developer"}
	other := role
	other.Name = "view"
	for what, row := range map[string]struct {
		found rbacv1.RoleBinding
		want  string
	}{
		"a binding to the same role with an additional subject: accepted": {rbacv1.RoleBinding{RoleRef: role, Subjects: []rbacv1.Subject{bob, alice}}, ""},
		"a binding to another role: refused":                              {rbacv1.RoleBinding{RoleRef: other, Subjects: []rbacv1.Subject{alice}}, "expected ClusterRole torpor-space-developer, found ClusterRole view"},
		"a binding without one of the subjects: refused":                  {rbacv1.RoleBinding{RoleRef: role, Subjects: []rbacv1.Subject{bob}}, "expected the subjects of the RoleBinding developers, found that User alice is missing"},
	} {
		err := bindRole(t.Context(), objecteditor.Editor{Client: oneBinding{found: row.found}, Out: io.Discard}, theirs)
		if said := fmt.Sprint(err); (err == nil) != (row.want == "") || !strings.Contains(said, row.want) && row.want != "" {
			t.Errorf("%s: expected %q, found %s", what, row.want, said)
		}
	}
}
