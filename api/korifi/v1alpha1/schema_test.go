// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestTheSchema asks a real API server; its subtests share one, which takes seconds to start.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	s := &served{testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	t.Run("what is refused at creation", s.testRefusedAtCreation)
	t.Run("what is refused later", s.testRefusedLater)
	t.Run("what is refused of a status", s.testRefusedStatus)
	t.Run("defaults", s.testDefaults)
	t.Run("columns", s.testColumns)
	t.Run("a status loses nothing", s.testStatus)
}

// served is an API server that serves the kinds.
type served struct{ *testenv.Environment }

func (s *served) testDefaults(t *testing.T) {
	u := app()
	if err := s.Client.Create(t.Context(), u, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	drain, _, _ := unstructured.NestedMap(u.Object, "spec", "drain")
	if diff := cmp.Diff(map[string]any{"policy": "Strict", "timeoutSeconds": int64(300)}, drain); diff != "" {
		t.Errorf("drain (-want +got):\n%s", diff)
	}
	if len(u.GetAnnotations()) != 0 {
		t.Errorf("found %v, want annotations to be left to admission", u.GetAnnotations())
	}
}

func (s *served) testColumns(t *testing.T) {
	namespace := s.CreateNamespace(t)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for name, row := range map[string]struct {
		object *unstructured.Unstructured
		status any
		header string
		want   []any
	}{
		"cfapps": {
			testenv.WithField(app(), "7", "metadata", "annotations", korifiv1alpha1.RevisionAnnotation), fullAppStatus(now),
			"NAME DISPLAY-NAME STATE STATUS REVISION READY DESIRED DRAINING RESTARTED AGE",
			[]any{"test", "my-app", "STARTED", "Starting", "7", 2.0, 3.0, 1.0, "date"},
		},
		"cfprocesses": {
			process(), fullProcessStatus(now), "NAME TYPE STATUS REVISION READY DESIRED DRAINING AGE",
			[]any{"test", "web", "Starting", 7.0, 2.0, 3.0, 1.0},
		},
		"cfbuilds": {build(), fullBuildStatus(now), "NAME STATE APP IMAGE AGE", []any{"test", "STAGED", "a", "example.com/app:1"}},
		"cfpackages": {
			pack(),
			korifiv1alpha1.CFPackageStatus{Conditions: conditions(now)},
			"NAME TYPE APP IMAGE READY AGE",
			[]any{"test", "docker", "a", "example.com/app:1", "False"},
		},
		"cforgs":   {org(), nil, "NAME DISPLAY-NAME READY AGE", []any{"test", "my org", nil}},
		"cfspaces": {space(), nil, "NAME DISPLAY-NAME READY AGE", []any{"test", "my space", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			row.object.SetNamespace(namespace)
			s.createWithStatus(t, row.object, row.status)
			table := s.GetTable(t, korifiv1alpha1.GroupVersion().WithResource(name), namespace)
			var names []string
			var cells []any
			for i, column := range table.ColumnDefinitions {
				if column.Priority == 0 {
					names = append(names, strings.ReplaceAll(strings.ToUpper(column.Name), " ", "-"))
					cell := table.Rows[0].Cells[i]
					if column.Type == "date" && cell != nil {
						cell = column.Type // How long ago it was differs.
					}
					cells = append(cells, cell)
				}
			}
			if got := strings.Join(names, " "); got != row.header {
				t.Errorf("found columns\n%s\nwant\n%s", got, row.header)
			}
			age := len(cells) - 1
			if diff := cmp.Diff(row.want, cells[:age]); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			if cells[age] == nil {
				t.Error("expected an age, found none")
			}
		})
	}
}

func (s *served) testStatus(t *testing.T) {
	namespace := s.CreateNamespace(t)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for name, row := range map[string]struct {
		object *unstructured.Unstructured
		status any
	}{
		"of an app":    {app(), fullAppStatus(now)},
		"of a process": {process(), fullProcessStatus(now)},
		"of a build":   {build(), fullBuildStatus(now)},
		"of a package": {pack(), korifiv1alpha1.CFPackageStatus{ObservedGeneration: 1, Conditions: conditions(now)}},
		"of an org":    {org(), korifiv1alpha1.CFOrgStatus{GUID: "g", ObservedGeneration: 1, Conditions: conditions(now)}},
		"of a space":   {space(), korifiv1alpha1.CFSpaceStatus{GUID: "g", ObservedGeneration: 1, Conditions: conditions(now)}},
	} {
		t.Run(name, func(t *testing.T) {
			row.object.SetNamespace(namespace)
			s.createWithStatus(t, row.object, row.status)
			if diff := cmp.Diff(decoded(t, row.status), row.object.Object["status"]); diff != "" {
				t.Errorf("(-written +read):\n%s", diff)
			}
		})
	}
}

func (s *served) createWithStatus(t *testing.T, u *unstructured.Unstructured, status any) {
	t.Helper()
	if err := s.Client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if status == nil {
		return
	}
	u.Object["status"] = decoded(t, status)
	if err := s.Client.SubResource("status").Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
}

// decoded is a value as JSON has it, with numbers as an object's are.
func decoded(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "X", "value": value})
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	inner, _ := u.Object["value"].(map[string]any)
	return inner
}
