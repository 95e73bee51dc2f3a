// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestTheSchema sends objects to a real API server. Its subtests share one server, because a start takes seconds.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	s := &served{testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	t.Run("values at creation", s.testRefusedAtCreation)
	t.Run("changes after creation", s.testRefusedLater)
	t.Run("changes of a status", s.testRefusedStatus)
	t.Run("defaults", s.testDefaults)
	t.Run("columns of kubectl get", s.testColumns)
	t.Run("the full status is stored", s.testStatus)
}

type served struct{ *testenv.Environment }

func (s *served) testDefaults(t *testing.T) {
	u := app()
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), u, client.DryRunAll))
	drain, _, _ := unstructured.NestedMap(u.Object, "spec", "drain")
	testenv.ExpectEqual(t, "drain", map[string]any{"policy": "Strict", "timeoutSeconds": int64(300)}, drain)
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
			table := s.GetTable(t, korifiv1alpha1.GroupVersion().WithResource(name), client.ObjectKeyFromObject(row.object))
			var names []string
			var cells []any
			for i, column := range table.ColumnDefinitions {
				if column.Priority == 0 {
					names = append(names, strings.ReplaceAll(strings.ToUpper(column.Name), " ", "-"))
					cell := table.Rows[0].Cells[i]
					if column.Type == "date" && cell != nil {
						cell = column.Type // The age differs in each run.
					}
					cells = append(cells, cell)
				}
			}
			if got := strings.Join(names, " "); got != row.header {
				t.Errorf("found columns\n%s\nwant\n%s", got, row.header)
			}
			age := len(cells) - 1
			testenv.ExpectEqual(t, "cells", row.want, cells[:age])
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
		"the full status of an app is stored":    {app(), fullAppStatus(now)},
		"the full status of a process is stored": {process(), fullProcessStatus(now)},
		"the full status of a build is stored":   {build(), fullBuildStatus(now)},
		"the full status of a package is stored": {pack(), korifiv1alpha1.CFPackageStatus{ObservedGeneration: 1, Conditions: conditions(now)}},
		"the full status of an org is stored":    {org(), korifiv1alpha1.CFOrgStatus{GUID: "g", ObservedGeneration: 1, Conditions: conditions(now)}},
		"the full status of a space is stored":   {space(), korifiv1alpha1.CFSpaceStatus{GUID: "g", ObservedGeneration: 1, Conditions: conditions(now)}},
	} {
		t.Run(name, func(t *testing.T) {
			row.object.SetNamespace(namespace)
			s.createWithStatus(t, row.object, row.status)
			testenv.ExpectEqual(t, "status", decoded(t, row.status), row.object.Object["status"])
		})
	}
}

func (s *served) createWithStatus(t *testing.T, u *unstructured.Unstructured, status any) {
	t.Helper()
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), u))
	if status == nil {
		return
	}
	u.Object["status"] = decoded(t, status)
	testenv.ExpectNoError(t, s.Client.SubResource("status").Update(t.Context(), u))
	testenv.ExpectNoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u))
}

// decoded returns the value as it is decoded from JSON, with the number types of an unstructured object.
func decoded(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "X", "value": value})
	testenv.ExpectNoError(t, err)
	var u unstructured.Unstructured
	testenv.ExpectNoError(t, u.UnmarshalJSON(text))
	inner, _ := u.Object["value"].(map[string]any)
	return inner
}

// refusal is a value at a path of an object, and the expected error. An empty error means that the value is accepted.
type refusal struct {
	object *unstructured.Unstructured
	path   string
	value  any
	says   string
}

func (s *served) testRefusedAtCreation(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, row := range map[string]refusal{
		"a valid app: accepted": {app(), "spec.displayName", "my_app-1", ""},
		"an app whose object name has more than 63 characters: rejected":    {app(), "metadata.name", long, "metadata.name: expected at most 63 characters, because the name is a label value of other objects; found 64; choose a shorter one"},
		"an app without a spec: rejected":                                   {app(), "spec", nil, "spec: Required value"},
		"an app without a display name: rejected":                           {app(), "spec.displayName", nil, "spec.displayName: Required value"},
		"an app whose display name contains a space: rejected":              {app(), "spec.displayName", "my app", "spec.displayName in body should match '^[-\\w]+$'"},
		"an app whose display name has 251 characters: rejected":            {app(), "spec.displayName", strings.Repeat("x", 251), "spec.displayName: Too long"},
		"an app without a desired state: rejected":                          {app(), "spec.desiredState", nil, "spec.desiredState: Required value"},
		"an app with the unknown desired state RESTARTING: rejected":        {app(), "spec.desiredState", "RESTARTING", `spec.desiredState: Unsupported value: "RESTARTING": supported values: "STOPPED", "STARTED"`},
		"an app with the desired state STOPPED: accepted":                   {app(), "spec.desiredState", "STOPPED", ""},
		"an app without a lifecycle: rejected":                              {app(), "spec.lifecycle", nil, "spec.lifecycle: Required value"},
		"an app with an unknown lifecycle: rejected":                        {app(), "spec.lifecycle.type", "cnb", "spec.lifecycle.type: Unsupported value"},
		"an app with a buildpack lifecycle, as in Korifi: accepted":         {app(), "spec.lifecycle", map[string]any{"type": "buildpack", "data": map[string]any{"stack": "s", "buildpacks": []any{"b"}}}, ""},
		"an app with a droplet: accepted":                                   {app(), "spec.currentDropletRef", map[string]any{"name": "d"}, ""},
		"an app with a droplet reference without a name: rejected":          {app(), "spec.currentDropletRef", map[string]any{"name": ""}, "spec.currentDropletRef.name in body should be at least 1 chars long"},
		"an app with the drain policy overlap: accepted":                    {app(), "spec.drain.policy", "Overlap", ""},
		"an app with an unknown drain policy: rejected":                     {app(), "spec.drain.policy", "Never", `spec.drain.policy: Unsupported value: "Never": supported values: "Strict", "Overlap"`},
		"an app with an unlimited drain: accepted":                          {app(), "spec.drain.timeoutSeconds", int64(0), ""},
		"an app with a negative drain timeout: rejected":                    {app(), "spec.drain.timeoutSeconds", int64(-1), "spec.drain.timeoutSeconds in body should be greater than or equal to 0"},
		"a process whose object name has more than 63 characters: rejected": {process(), "metadata.name", long, "metadata.name: expected at most 63 characters, because the name is a label value of other objects; found 64; choose a shorter one"},
		"a process without an app: rejected":                                {process(), "spec.appRef", nil, "spec.appRef: Required value"},
		"a process without a type: rejected":                                {process(), "spec.processType", nil, "spec.processType: Required value"},
		"a process with an empty type: rejected":                            {process(), "spec.processType", "", "spec.processType in body should be at least 1 chars long"},
		"a process with a type of more than 63 characters: rejected":        {process(), "spec.processType", long, "spec.processType: Too long"},
		"a process of a type that is not a valid label: rejected":           {process(), "spec.processType", "bad value!", "because the type is a label value of Pods; choose a type such as worker"},
		"a process of the type worker: accepted":                            {process(), "spec.processType", "worker.v2", ""},
		"a process with port 65536: rejected":                               {process(), "spec.ports", []any{int64(65536)}, "spec.ports[0] in body should be less than or equal to 65535"},
		"a process with port 0: rejected":                                   {process(), "spec.ports", []any{int64(0)}, "spec.ports[0] in body should be greater than or equal to 1"},
		"a process with 0 instances: accepted":                              {process(), "spec.desiredInstances", int64(0), ""},
		"a process with -1 instances: rejected":                             {process(), "spec.desiredInstances", int64(-1), "spec.desiredInstances in body should be greater than or equal to 0"},
		"a process with 10000 instances: accepted":                          {process(), "spec.desiredInstances", int64(10000), ""},
		"a process with 2e9 instances: rejected":                            {process(), "spec.desiredInstances", int64(2e9), "spec.desiredInstances in body should be less than or equal to 10000"},
		"a process with more than 1 TiB of memory: rejected":                {process(), "spec.memoryMB", int64(1<<20 + 1), "spec.memoryMB in body should be less than or equal to 1048576"},
		"a process whose memory overflows: rejected":                        {process(), "spec.memoryMB", int64(1 << 44), "spec.memoryMB in body should be less than or equal to 1048576"},
		"a process whose disk overflows: rejected":                          {process(), "spec.diskQuotaMB", int64(1 << 44), "spec.diskQuotaMB in body should be less than or equal to 1048576"},
		"a process without memory: rejected":                                {process(), "spec.memoryMB", int64(0), "spec.memoryMB in body should be greater than or equal to 1"},
		"a process without a disk: rejected":                                {process(), "spec.diskQuotaMB", int64(0), "spec.diskQuotaMB in body should be greater than or equal to 1"},
		"a process without a health check: rejected":                        {process(), "spec.healthCheck", nil, "spec.healthCheck: Required value"},
		"a process with an empty health check: accepted":                    {process(), "spec.healthCheck", map[string]any{"type": "", "data": map[string]any{"invocationTimeoutSeconds": int64(0), "timeoutSeconds": int64(0)}}, ""},
		"a process with an unknown health check: rejected":                  {process(), "spec.healthCheck.type", "grpc", "spec.healthCheck.type: Unsupported value"},
		"an HTTP health check with a path: accepted":                        {process(), "spec.healthCheck.data.httpEndpoint", "/healthz", ""},
		"an HTTP health check with an empty path: accepted":                 {process(), "spec.healthCheck.data.httpEndpoint", "", ""},
		"an HTTP health check with an invalid path: rejected":               {process(), "spec.healthCheck.data.httpEndpoint", "healthz", "expected a path such as /healthz; put a slash first"},
		"a health check with a negative timeout: rejected":                  {process(), "spec.healthCheck.data.timeoutSeconds", int64(-1), "should be greater than or equal to 0"},
		"a health check with a negative invocation timeout: rejected":       {process(), "spec.healthCheck.data.invocationTimeoutSeconds", int64(-1), "should be greater than or equal to 0"},
		"a valid build: accepted":                                           {build(), "spec.stagingMemoryMB", int64(0), ""},
		"a build without a package: rejected":                               {build(), "spec.packageRef", nil, "spec.packageRef: Required value"},
		"a build without an app: rejected":                                  {build(), "spec.appRef", nil, "spec.appRef: Required value"},
		"a build with a negative memory limit: rejected":                    {build(), "spec.stagingMemoryMB", int64(-1), "should be greater than or equal to 0"},
		"a build with a negative disk limit: rejected":                      {build(), "spec.stagingDiskMB", int64(-1), "should be greater than or equal to 0"},
		"a valid package: accepted":                                         {pack(), "spec.source.registry.image", "example.com/other", ""},
		"a package of an unknown type: rejected":                            {pack(), "spec.type", "git", "spec.type: Unsupported value"},
		"a docker package without a source: rejected":                       {pack(), "spec.source", nil, "spec.source: Invalid value: expected registry.image, because the type of the package is docker; found none; set the image"},
		"a package with an empty image: rejected":                           {pack(), "spec.source.registry.image", "", "expected registry.image, because the type of the package is docker; found none; set the image"},
		"a valid org: accepted":                                             {org(), "spec.displayName", "my other org", ""},
		"an org without a display name: rejected":                           {org(), "spec.displayName", nil, "spec.displayName: Required value"},
		"an org with an empty display name: rejected":                       {org(), "spec.displayName", "", "spec.displayName in body should match"},
		"an org whose object name has more than 63 characters: rejected":    {org(), "metadata.name", long, "metadata.name: expected at most 63 characters, because a namespace is named after it; found 64; choose a shorter one"},
		"a space with an empty display name: rejected":                      {space(), "spec.displayName", "", "spec.displayName in body should match"},
		"a space whose object name has more than 63 characters: rejected":   {space(), "metadata.name", long, "metadata.name: expected at most 63 characters, because a namespace is named after it; found 64; choose a shorter one"},
	} {
		t.Run(name, func(t *testing.T) {
			u := testenv.WithField(row.object, row.value, strings.Split(row.path, ".")...)
			testenv.ExpectRefused(t, s.Client.Create(t.Context(), u, client.DryRunAll), row.says)
		})
	}
}

func (s *served) testRefusedLater(t *testing.T) {
	other := map[string]any{"name": "other"}
	for name, row := range map[string]refusal{
		"an app that is stopped: accepted":        {app(), "spec.desiredState", "STOPPED", ""},
		"an app that is renamed: accepted":        {app(), "spec.displayName", "other", ""},
		"a process that is scaled: accepted":      {process(), "spec.desiredInstances", int64(5), ""},
		"a process whose app changes: rejected":   {process(), "spec.appRef", other, "spec.appRef: Invalid value: expected no change, because a process belongs to one app; found one; create a new CFProcess"},
		"a process whose type changes: rejected":  {process(), "spec.processType", "worker", `spec.processType: Invalid value: "worker": expected no change, because a process has one type; found one; create a new CFProcess`},
		"a build whose package changes: rejected": {build(), "spec.packageRef", other, "spec.packageRef: Invalid value: expected no change, because a build is made from one package; found one; create a new CFBuild"},
		"a build whose app changes: rejected":     {build(), "spec.appRef", other, "spec.appRef: Invalid value: expected no change, because a build belongs to one app; found one; create a new CFBuild"},
		"a package whose app changes: rejected":   {pack(), "spec.appRef", other, "spec.appRef: Invalid value: expected no change, because a package belongs to one app; found one; create a new CFPackage"},
		"a package whose type changes: rejected":  {pack(), "spec.type", "bits", `spec.type: Invalid value: "bits": expected no change, because a package has one type; found one; create a new CFPackage`},
		"a package whose image changes: accepted": {pack(), "spec.source.registry.image", "example.com/app:2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.object.SetNamespace(s.CreateNamespace(t))
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), row.object))
			testenv.ExpectRefused(t, s.Client.Update(t.Context(), testenv.WithField(row.object, row.value, strings.Split(row.path, ".")...)), row.says)
		})
	}
}

func (s *served) testRefusedStatus(t *testing.T) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for name, row := range map[string]struct {
		refusal
		status any
	}{
		"an observed revision that increases: accepted":         {refusal{app(), "observedRevision", int64(8), ""}, fullAppStatus(now)},
		"an observed revision that decreases: rejected":         {refusal{app(), "observedRevision", int64(6), "status.observedRevision: Invalid value: expected at least 7, because revision numbers never decrease"}, fullAppStatus(now)},
		"an observed revision that is removed: rejected":        {refusal{app(), "observedRevision", nil, "status.observedRevision: Invalid value: expected at least 7, because revision numbers never decrease"}, fullAppStatus(now)},
		"an unknown cause of a restart: rejected":               {refusal{app(), "lastRestart.cause", "Whim", "status.lastRestart.cause: Unsupported value"}, fullAppStatus(now)},
		"an unknown actual state of an app: rejected":           {refusal{app(), "actualState", "DOWN", "status.actualState: Unsupported value"}, fullAppStatus(now)},
		"an unknown observed desired state of an app: rejected": {refusal{app(), "observedDesiredState", "DOWN", "status.observedDesiredState: Unsupported value"}, fullAppStatus(now)},
		"an unknown state of an instance: rejected":             {refusal{process(), "instancesStatus", map[string]any{"0": map[string]any{"state": "UP"}}, "status.instancesStatus.0.state: Unsupported value"}, fullProcessStatus(now)},
		"a build that fails: accepted":                          {refusal{build(), "state", "FAILED", ""}, fullBuildStatus(now)},
		"an unknown state of a build: rejected":                 {refusal{build(), "state", "DONE", "status.state: Unsupported value"}, fullBuildStatus(now)},
		"a droplet that changes: rejected":                      {refusal{build(), "droplet.registry.image", "example.com/app:2", "status.droplet: Invalid value: expected no change to the droplet, because revisions of the app run it; found one; create a new CFBuild"}, fullBuildStatus(now)},
		"a droplet that is removed: rejected":                   {refusal{build(), "droplet", nil, "expected no change to the droplet, because revisions of the app run it"}, fullBuildStatus(now)},
	} {
		t.Run(name, func(t *testing.T) {
			row.object.SetNamespace(s.CreateNamespace(t))
			s.createWithStatus(t, row.object, row.status)
			path := append([]string{"status"}, strings.Split(row.path, ".")...)
			testenv.ExpectRefused(t, s.Client.SubResource("status").Update(t.Context(), testenv.WithField(row.object, row.value, path...)), row.says)
		})
	}
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": korifiv1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": "test", "namespace": "default"}, "spec": spec,
	}}
}

// These functions return an accepted object of each kind with few optional fields.
func app() *unstructured.Unstructured {
	return object("CFApp", map[string]any{"displayName": "my-app", "desiredState": "STARTED", "lifecycle": docker()})
}

func process() *unstructured.Unstructured {
	return object("CFProcess", map[string]any{
		"appRef": map[string]any{"name": "a"}, "processType": "web", "healthCheck": map[string]any{"type": "port"},
		"desiredInstances": int64(3), "memoryMB": int64(64), "diskQuotaMB": int64(64),
	})
}

func build() *unstructured.Unstructured {
	return object("CFBuild", map[string]any{
		"packageRef": map[string]any{"name": "p"}, "appRef": map[string]any{"name": "a"}, "stagingMemoryMB": int64(1), "stagingDiskMB": int64(1), "lifecycle": docker(),
	})
}

func pack() *unstructured.Unstructured {
	return object("CFPackage", map[string]any{
		"type": "docker", "appRef": map[string]any{"name": "a"}, "source": map[string]any{"registry": map[string]any{"image": "example.com/app:1"}},
	})
}

func org() *unstructured.Unstructured {
	return object("CFOrg", map[string]any{"displayName": "my org"})
}

func space() *unstructured.Unstructured {
	return object("CFSpace", map[string]any{"displayName": "my space"})
}

func docker() map[string]any { return map[string]any{"type": "docker", "data": map[string]any{}} }

func conditions(now metav1.Time) []metav1.Condition {
	return []metav1.Condition{{
		Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: now,
		Reason: korifiv1alpha1.StartingReason, Message: "2 of 3 instances are ready",
	}}
}

func fullAppStatus(now metav1.Time) korifiv1alpha1.CFAppStatus {
	restart := korifiv1alpha1.Restart{Revision: 7, Cause: korifiv1alpha1.CausedByStop, By: "alice", At: now, Droplet: "d"}
	return korifiv1alpha1.CFAppStatus{
		Conditions: conditions(now), ObservedGeneration: 3, ObservedDesiredState: korifiv1alpha1.StartedState, ActualState: korifiv1alpha1.StartedState,
		ObservedRevision: 7, Instances: &korifiv1alpha1.InstanceCounts{Desired: 3, Ready: 2, Draining: 1},
		LastRestart: &restart, Restarts: []korifiv1alpha1.Restart{restart}, VCAPServicesSecretName: "s", VCAPApplicationSecretName: "a",
		ServiceBindings: []korifiv1alpha1.ServiceBinding{{GUID: "g", Name: new("n"), Secret: "s"}},
	}
}

func fullProcessStatus(now metav1.Time) korifiv1alpha1.CFProcessStatus {
	return korifiv1alpha1.CFProcessStatus{
		Conditions: conditions(now), ObservedGeneration: 3, ObservedRevision: 7, ActualInstances: 2, DrainingInstances: 1,
		Revisions: []korifiv1alpha1.RevisionStatus{{Revision: 6, Draining: 1}, {Revision: 7, Desired: 3, Ready: 2}},
		InstancesStatus: map[string]korifiv1alpha1.InstanceStatus{
			"0": {State: korifiv1alpha1.RunningInstance, Timestamp: &now},
			"1": {State: korifiv1alpha1.CrashedInstance, Details: "exit code 1"},
		},
	}
}

func fullBuildStatus(now metav1.Time) korifiv1alpha1.CFBuildStatus {
	return korifiv1alpha1.CFBuildStatus{
		Conditions: conditions(now), ObservedGeneration: 1, State: korifiv1alpha1.StagedBuild,
		Droplet: &korifiv1alpha1.Droplet{
			Registry: korifiv1alpha1.Registry{Image: "example.com/app:1"}, Stack: "s", Ports: []int32{8080},
			ProcessTypes: []korifiv1alpha1.ProcessType{{Type: "web", Command: "run"}},
		},
	}
}
