// SPDX-License-Identifier: Apache-2.0

package otherwriter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func entry(manager string, second int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Time: &metav1.Time{Time: time.Unix(second, 0)}}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const (
		hiveWrites = "Hive has written the object: its field manager is hive1-hibernation"
		hiveRuns   = "Hive runs: its Lease hive/hive-controllers-leader is held"
	)
	fields := func(all ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return all }
	user, hive := entry("kubectl-client-side-apply", 1), entry("hive1-hibernation", 10)
	for name, row := range map[string]struct {
		observed Observed
		want     string
	}{
		"a new object is handled by Torpor":                                                                        {Observed{Upstream: Hive(), Fields: fields(user)}, ""},
		"an object that only Torpor has written is handled by Torpor":                                              {Observed{Upstream: Hive(), Fields: fields(user, entry("torpor", 5))}, ""},
		"an object that the upstream has written is not handled by Torpor":                                         {Observed{Upstream: Hive(), Fields: fields(user, hive)}, hiveWrites},
		"an object that another controller of the upstream has written is not handled by Torpor":                   {Observed{Upstream: Hive(), Fields: fields(entry("hive-controllers", 1))}, "Hive has written the object: its field manager is hive-controllers"},
		"an object in which Torpor has only reported the upstream is not handled by Torpor":                        {Observed{Upstream: Hive(), Fields: fields(hive, entry(FieldManager, 20))}, hiveWrites},
		"an object that Torpor has written after the upstream is handled by Torpor":                                {Observed{Upstream: Hive(), Fields: fields(hive, entry("torpor", 11))}, ""},
		"an object that the upstream has written after Torpor's earliest entry is not handled by Torpor":           {Observed{Upstream: Hive(), Fields: fields(hive, entry("torpor", 11), entry("torpor-provisioning", 3))}, hiveWrites},
		"an object that Torpor has written before the upstream's latest entry is not handled by Torpor":            {Observed{Upstream: Hive(), Fields: fields(hive, entry("hive2-machinepool", 30), entry("torpor", 11))}, "Hive has written the object: its field manager is hive2-machinepool"},
		"an object that the upstream has written after Torpor is not handled by Torpor":                            {Observed{Upstream: Hive(), Fields: fields(entry("torpor", 9), hive)}, hiveWrites},
		"an object that both have written in the same second is not handled by Torpor":                             {Observed{Upstream: Hive(), Fields: fields(entry("torpor", 10), hive)}, hiveWrites},
		"an entry of the upstream without a time is ignored":                                                       {Observed{Upstream: Hive(), Fields: fields(metav1.ManagedFieldsEntry{Manager: "hive1-hibernation"}, entry("torpor", 1))}, ""},
		"a new object is not handled by Torpor while the upstream runs":                                            {Observed{Upstream: Hive(), Fields: fields(user), Running: "its Lease hive/hive-controllers-leader is held"}, hiveRuns},
		"an object that Torpor has written is not handled by Torpor while the upstream runs":                       {Observed{Upstream: Hive(), Fields: fields(entry("torpor", 11)), Running: "its Lease hive/hive-controllers-leader is held"}, hiveRuns},
		"an object that was taken over is handled by Torpor even while the upstream runs":                          {Observed{Upstream: Hive(), Fields: fields(hive), Running: "its Lease hive/hive-controllers-leader is held", IsTakenOver: true}, ""},
		"an object that Torpor has not written is not handled by Torpor if a webhook of the upstream exists":       {Observed{Upstream: MOCO(), Fields: fields(user), Webhook: "w"}, "MOCO is installed: its webhook configuration is w"},
		"an object that Torpor has written is handled by Torpor despite a webhook of the upstream":                 {Observed{Upstream: MOCO(), Fields: fields(user, entry("torpor", 5)), Webhook: "w"}, ""},
		"an object that was taken over is handled by Torpor despite a webhook of the upstream":                     {Observed{Upstream: MOCO(), Fields: fields(user), Webhook: "w", IsTakenOver: true}, ""},
		"an object that was taken over is handled by Torpor":                                                       {Observed{Upstream: Hive(), Fields: fields(hive), IsTakenOver: true}, ""},
		"a terminating object that the upstream has not written is handled by Torpor even while the upstream runs": {Observed{Upstream: Korifi(), Running: "its Lease korifi/13c200ec.cloudfoundry.org is held", IsDeleting: true}, ""},
		"a terminating object that the upstream has written is not handled by Torpor":                              {Observed{Upstream: MOCO(), Fields: fields(entry("moco-controller", 1)), IsDeleting: true}, "MOCO has written the object: its field manager is moco-controller"},
		"an object that MOCO's kubectl plugin has written is handled by Torpor":                                    {Observed{Upstream: MOCO(), Fields: fields(entry("kubectl-moco", 1))}, ""},
		"an object with a finalizer of the upstream is not handled by Torpor":                                      {Observed{Upstream: Korifi(), Fields: fields(entry("api", 1)), Finalizers: []string{"a", "cfApp.korifi.cloudfoundry.org"}}, "Korifi has created or changed the object: its finalizer is cfApp.korifi.cloudfoundry.org"},
		"an object that Torpor has written is handled by Torpor despite a finalizer of the upstream":               {Observed{Upstream: Korifi(), Fields: fields(entry("torpor-restart", 1)), Finalizers: []string{"cfApp.korifi.cloudfoundry.org"}}, ""},
		"an object with a finalizer of Torpor is handled by Torpor":                                                {Observed{Upstream: Korifi(), Finalizers: []string{"korifi.cloudfoundry.org/cfApp"}}, ""},
		"an LRP that eirini-controller has written is not handled by Torpor":                                       {Observed{Upstream: Eirini(), Fields: fields(entry("torpor-restart", 1), entry("eirini-controller", 2))}, "eirini-controller has written the object: its field manager is eirini-controller"},
		"field managers with similar names are ignored":                                                            {Observed{Upstream: Korifi(), Fields: fields(entry("manager.test", 1), entry("managers", 1))}, ""},
		"the field manager of Korifi is manager":                                                                   {Observed{Upstream: Korifi(), Fields: fields(entry("manager", 1))}, "Korifi has written the object: its field manager is manager"},
	} {
		t.Run(name, func(t *testing.T) {
			if found := FindWriter(row.observed); found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}

func TestTakeFields(t *testing.T) {
	t.Parallel()
	managed := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "apps/v1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	user, status := managed("kubectl-edit", update, "", `{"f:spec":{"f:replicas":{}}}`), managed("moco-controller", update, "status", `{"f:status":{}}`)
	theirs := managed("moco-controller", apply, "", `{"f:spec":{".":{},"f:template":{"f:a":{}}}}`)
	for name, row := range map[string]struct{ entries, want []metav1.ManagedFieldsEntry }{
		"entries of other field managers are not changed": {[]metav1.ManagedFieldsEntry{user, status}, nil},
		"fields that the project applied are moved to the new field manager": {
			[]metav1.ManagedFieldsEntry{user, theirs, status}, []metav1.ManagedFieldsEntry{user, managed("own", apply, "", `{"f:spec":{".":{},"f:template":{"f:a":{}}}}`), status},
		},
		"fields that the project updated are merged with those that the new field manager applied": {
			[]metav1.ManagedFieldsEntry{theirs, managed("moco-controller", update, "", `{"f:spec":{"f:template":{"f:b":{}}}}`), managed("own", apply, "", `{"f:metadata":{}}`)},
			[]metav1.ManagedFieldsEntry{managed("own", apply, "", `{"f:metadata":{},"f:spec":{".":{},"f:template":{"f:a":{},"f:b":{}}}}`)},
		},
		"fields that the new field manager updated stay separate": {
			[]metav1.ManagedFieldsEntry{theirs, managed("own", update, "", `{"f:metadata":{}}`)},
			[]metav1.ManagedFieldsEntry{managed("own", apply, "", `{"f:spec":{".":{},"f:template":{"f:a":{}}}}`), managed("own", update, "", `{"f:metadata":{}}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			taken, err := TakeFields(row.entries, MOCO(), "own")
			if diff := cmp.Diff(row.want, taken, cmp.Comparer(func(a, b metav1.FieldsV1) bool { return a.GetRawString() == b.GetRawString() })); diff != "" || err != nil {
				t.Errorf("(-want +got) %v:\n%s", err, diff)
			}
		})
	}
}
