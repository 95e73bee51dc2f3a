// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

func buildApp(name string) *korifiv1alpha1.CFApp {
	return &korifiv1alpha1.CFApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "guid", UID: "a"},
		Spec:       korifiv1alpha1.CFAppSpec{DisplayName: name},
	}
}

// liveApp is an API server that has at most one app.
type liveApp struct {
	client.Client

	app *korifiv1alpha1.CFApp
	// patches are the bodies of the patches, all of which liveApp rejects.
	patches []string
}

// Get implements client.Reader.
func (l *liveApp) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if l.app == nil || client.ObjectKeyFromObject(l.app) != key {
		return k8serrors.NewNotFound(schema.GroupResource{Resource: "cfapps"}, key.Name)
	}
	l.app.DeepCopyInto(into.(*korifiv1alpha1.CFApp))
	return nil
}

// Patch implements client.Writer.
func (l *liveApp) Patch(_ context.Context, app client.Object, patch client.Patch, _ ...client.PatchOption) error {
	body, err := patch.Data(app)
	l.patches = append(l.patches, string(body))
	return cmp.Or(err, error(k8serrors.NewForbidden(schema.GroupResource{Resource: "cfapps"}, app.GetName(), nil)))
}

// TestUpdateAppReadsTheNameFromTheAPIServer updates an app that is called shop in the cache. Its name in the API server
// decides whether the update is a rename.
func TestUpdateAppReadsTheNameFromTheAPIServer(t *testing.T) {
	for name, row := range map[string]struct {
		live, requested string
		isRenamed       bool
	}{
		"a request with the current name: no rename":              {"shop", "shop", false},
		"a request with the former name of a renamed app: rename": {"store", "shop", true},
		"a request with a new name: rename":                       {"shop", "store", true},
		"a request without a name: no rename":                     {"store", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := &liveApp{app: buildApp(row.live)}
			apps := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
			_, err := (&Store{apps: apps}).UpdateApp(t.Context(), &authorization.Caller{Client: server}, buildApp("shop"), row.requested, nil)
			if isRenamed := len(server.patches) > 0; isRenamed != row.isRenamed || (err != nil) != row.isRenamed {
				t.Errorf("expected a rename: %t, found the patches %v and the error %v", row.isRenamed, server.patches, err)
			}
		})
	}
}

// TestNamesOfDeletedAppsAreFree uses a cache that still contains a deleted app.
func TestNamesOfDeletedAppsAreFree(t *testing.T) {
	for name, row := range map[string]struct {
		live   *korifiv1alpha1.CFApp
		isFree bool
	}{
		"an existing app keeps its name":      {buildApp("shop"), false},
		"a deleted app frees its name":        {nil, true},
		"a renamed app frees its former name": {buildApp("store"), true},
	} {
		t.Run(name, func(t *testing.T) {
			apps := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
			if err := apps.Add(buildApp("shop")); err != nil {
				t.Fatal(err)
			}
			s := &Store{apps: apps}
			err := s.checkNameIsFree(t.Context(), &authorization.Caller{Client: &liveApp{app: row.live}}, "space", "shop")
			if row.isFree != (err == nil) || err != nil && !strings.Contains(err.Error(), "already exists") {
				t.Errorf("expected the name to be free: %t, found %v", row.isFree, err)
			}
			if err := s.checkNameIsFree(t.Context(), &authorization.Caller{}, "space", "other"); err != nil {
				t.Errorf("expected another name to be free without a request, found %v", err)
			}
		})
	}
}

// leaseServer is an API server that has at most one Lease and no apps except holder.
type leaseServer struct {
	client.Client

	lease  *coordinationv1.Lease
	holder *korifiv1alpha1.CFApp
	// beforeRead and beforeUpdate run before the first read and the first update of the Lease, as a concurrent request
	// would.
	beforeRead, beforeUpdate func(*leaseServer)
}

func runOnce(f *func(*leaseServer), l *leaseServer) {
	if run := *f; run != nil {
		*f = nil
		run(l)
	}
}

// Create implements client.Writer.
func (l *leaseServer) Create(_ context.Context, made client.Object, _ ...client.CreateOption) error {
	if l.lease != nil {
		return k8serrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, made.GetName())
	}
	l.lease = made.DeepCopyObject().(*coordinationv1.Lease)
	l.lease.ResourceVersion = "1"
	return nil
}

// Get implements client.Reader.
func (l *leaseServer) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if app, ok := into.(*korifiv1alpha1.CFApp); ok {
		if l.holder == nil || l.holder.Name != key.Name {
			return k8serrors.NewNotFound(schema.GroupResource{Resource: "cfapps"}, key.Name)
		}
		l.holder.DeepCopyInto(app)
		return nil
	}
	runOnce(&l.beforeRead, l)
	if l.lease == nil {
		return k8serrors.NewNotFound(schema.GroupResource{Resource: "leases"}, key.Name)
	}
	l.lease.DeepCopyInto(into.(*coordinationv1.Lease))
	return nil
}

// Update implements client.Writer. The API server rejects the update of a deleted object as a conflict, because the
// object's UID differs from the empty UID of a missing object.
func (l *leaseServer) Update(_ context.Context, changed client.Object, _ ...client.UpdateOption) error {
	runOnce(&l.beforeUpdate, l)
	if l.lease == nil || l.lease.ResourceVersion != changed.GetResourceVersion() {
		return k8serrors.NewConflict(schema.GroupResource{Resource: "leases"}, changed.GetName(), errors.New("the object has changed"))
	}
	l.lease = changed.DeepCopyObject().(*coordinationv1.Lease)
	l.lease.ResourceVersion += "1"
	return nil
}

// TestNameOfADeletedAppIsClaimed claims the name of an app whose Lease still exists. The garbage collector deletes the
// Lease, or another app claims the name, before each of the requests.
func TestNameOfADeletedAppIsClaimed(t *testing.T) {
	collect := func(l *leaseServer) { l.lease = nil }
	other := buildApp("shop")
	other.Name = "other"
	claim := func(l *leaseServer) {
		l.holder, l.lease.Spec.HolderIdentity = other, &other.Name
		l.lease.ResourceVersion += "1"
	}
	for name, row := range map[string]struct {
		server  leaseServer
		isTaken bool
	}{
		"the Lease remains":                                       {leaseServer{}, false},
		"the Lease is collected before it is read":                {leaseServer{beforeRead: collect}, false},
		"the Lease is collected before it is updated":             {leaseServer{beforeUpdate: collect}, false},
		"another app claims the name before the Lease is read":    {leaseServer{beforeRead: claim}, true},
		"another app claims the name before the Lease is updated": {leaseServer{beforeUpdate: claim}, true},
		"another app has the name":                                {leaseServer{holder: other}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &row.server
			server.lease = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &other.Name}}
			server.lease.ResourceVersion = "1"
			app := buildApp("shop")
			err := (&Store{}).claimName(t.Context(), &authorization.Caller{Client: server}, app)
			if row.isTaken != (err != nil) || err != nil && !strings.Contains(err.Error(), "already exists") {
				t.Fatalf("expected the name to be taken: %t, found %v", row.isTaken, err)
			}
			want := app.Name
			if row.isTaken {
				want = other.Name
			}
			if found := *server.lease.Spec.HolderIdentity; found != want {
				t.Errorf("expected the holder %s, found %s", want, found)
			}
		})
	}
}
