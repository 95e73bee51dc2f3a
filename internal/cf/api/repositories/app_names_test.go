// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"strings"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// liveApp is an API server that has at most one app.
type liveApp struct {
	client.Client

	app *korifiv1alpha1.CFApp
}

// Get implements client.Reader.
func (l liveApp) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if l.app == nil || client.ObjectKeyFromObject(l.app) != key {
		return k8serrors.NewNotFound(schema.GroupResource{Resource: "cfapps"}, key.Name)
	}
	l.app.DeepCopyInto(into.(*korifiv1alpha1.CFApp))
	return nil
}

// TestNamesOfDeletedAppsAreFree uses a cache that still contains a deleted app.
func TestNamesOfDeletedAppsAreFree(t *testing.T) {
	app := func(name string) *korifiv1alpha1.CFApp {
		return &korifiv1alpha1.CFApp{
			ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "guid", UID: "a"},
			Spec:       korifiv1alpha1.CFAppSpec{DisplayName: name},
		}
	}
	for name, row := range map[string]struct {
		live   *korifiv1alpha1.CFApp
		isFree bool
	}{
		"an existing app keeps its name":      {app("shop"), false},
		"a deleted app frees its name":        {nil, true},
		"a renamed app frees its former name": {app("store"), true},
	} {
		t.Run(name, func(t *testing.T) {
			apps := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
			if err := apps.Add(app("shop")); err != nil {
				t.Fatal(err)
			}
			s := &Store{apps: apps}
			err := s.checkNameIsFree(t.Context(), &authorization.Caller{Client: liveApp{app: row.live}}, "space", "shop")
			if row.isFree != (err == nil) || err != nil && !strings.Contains(err.Error(), "already exists") {
				t.Errorf("expected the name to be free: %t, found %v", row.isFree, err)
			}
			if err := s.checkNameIsFree(t.Context(), &authorization.Caller{}, "space", "other"); err != nil {
				t.Errorf("expected another name to be free without a request, found %v", err)
			}
		})
	}
}
