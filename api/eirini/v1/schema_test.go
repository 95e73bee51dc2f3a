// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestTheSchema sends objects to a real API server. Its subtests share one server, because a start takes seconds.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	s := &served{testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	t.Run("values at creation", s.testRefusedAtCreation)
	t.Run("changes after creation", s.testRefusedLater)
	t.Run("columns of kubectl get and status", s.testColumns)
	t.Run("all fields are stored", s.testFull)
}

type served struct{ *testenv.Environment }

// change is a change to an LRP, and the expected error. The error is empty if the change is accepted.
type change struct {
	do   func(*eiriniv1.LRPSpec)
	says string
}

func (s *served) testRefusedAtCreation(t *testing.T) {
	for name, row := range map[string]change{
		"the smallest LRP: accepted":                    {func(*eiriniv1.LRPSpec) {}, ""},
		"an LRP without a GUID: rejected":               {func(l *eiriniv1.LRPSpec) { l.GUID = "" }, "spec.GUID in body should match"},
		"a GUID that is not a valid label: rejected":    {func(l *eiriniv1.LRPSpec) { l.GUID = "a b" }, "spec.GUID in body should match"},
		"a GUID of 64 characters: rejected":             {func(l *eiriniv1.LRPSpec) { l.GUID = strings.Repeat("x", 64) }, "spec.GUID in body should match"},
		"a version that is a valid label: accepted":     {func(l *eiriniv1.LRPSpec) { l.Version = "7" }, ""},
		"a version that is not a valid label: rejected": {func(l *eiriniv1.LRPSpec) { l.Version = "bad value!" }, "spec.version in body should match"},
		"an LRP without an image: rejected":             {func(l *eiriniv1.LRPSpec) { l.Image = "" }, "spec.image in body should be at least 1 chars long"},
		"an LRP with a disk size of 0: rejected":        {func(l *eiriniv1.LRPSpec) { l.DiskMB = 0 }, "spec.diskMB in body should be greater than or equal to 1"},
		"an LRP without instances: accepted":            {func(l *eiriniv1.LRPSpec) { l.Instances = 0 }, ""},
		"an LRP with -1 instances: rejected":            {func(l *eiriniv1.LRPSpec) { l.Instances = -1 }, "spec.instances in body should be greater than or equal to 0"},
		"-1 MiB of memory: rejected":                    {func(l *eiriniv1.LRPSpec) { l.MemoryMB = -1 }, "spec.memoryMB in body should be greater than or equal to 0"},
		"the largest CPU weight: accepted":              {func(l *eiriniv1.LRPSpec) { l.CPUWeight = 255 }, ""},
		"an unknown type of health check: rejected":     {func(l *eiriniv1.LRPSpec) { l.Health.Type = "grpc" }, "spec.health.type: Unsupported value"},
		"a health check on port 65536: rejected":        {func(l *eiriniv1.LRPSpec) { l.Health.Port = 65536 }, "spec.health.port in body should be less than or equal to 65535"},
		"a health check on a negative port: rejected":   {func(l *eiriniv1.LRPSpec) { l.Health.Port = -1 }, "spec.health.port in body should be greater than or equal to 0"},
		"a start timeout of -1 ms: rejected":            {func(l *eiriniv1.LRPSpec) { l.Health.TimeoutMs = -1 }, "spec.health.timeoutMs in body should be greater than or equal to 0"},
		"a check timeout of -1 ms: rejected":            {func(l *eiriniv1.LRPSpec) { l.Health.InvocationTimeoutMs = -1 }, "spec.health.invocationTimeoutMs in body should be greater than or equal to 0"},
		"an environment variable that is set twice: rejected": {func(l *eiriniv1.LRPSpec) {
			l.Environment = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
		}, "spec.environment[1]: Duplicate value"},
		"an LRP with 10001 instances: rejected": {func(l *eiriniv1.LRPSpec) { l.Instances = 10001 }, "spec.instances in body should be less than or equal to 10000"},
		"memory that overflows: rejected":       {func(l *eiriniv1.LRPSpec) { l.MemoryMB = 1 << 44 }, "spec.memoryMB in body should be less than or equal to 1048576"},
		"a disk that overflows: rejected":       {func(l *eiriniv1.LRPSpec) { l.DiskMB = 1 << 44 }, "spec.diskMB in body should be less than or equal to 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			lrp := smallest()
			row.do(&lrp.Spec)
			testenv.ExpectRefused(t, s.Client.Create(t.Context(), lrp, client.DryRunAll), row.says)
		})
	}
}

func (s *served) testRefusedLater(t *testing.T) {
	stays := "expected no change, because an LRP runs one revision of an app; found one; "
	for name, row := range map[string]change{
		"a changed number of instances: accepted": {func(l *eiriniv1.LRPSpec) { l.Instances = 3 }, ""},
		"a changed image: rejected":               {func(l *eiriniv1.LRPSpec) { l.Image = "example.com/app:2" }, "spec.image: Invalid value: " + stays + "restart or deploy the app"},
		"a changed version: rejected":             {func(l *eiriniv1.LRPSpec) { l.Version = "2" }, "spec.version: Invalid value: " + stays + "create a new LRP"},
		"a removed version: rejected":             {func(l *eiriniv1.LRPSpec) { l.Version = "" }, "spec.version: Invalid value: " + stays + "create a new LRP"},
		"a changed GUID: rejected":                {func(l *eiriniv1.LRPSpec) { l.GUID = "other" }, "spec.GUID: Invalid value: expected no change, because the StatefulSet selects Pods by the GUID; found one; create a new LRP"},
		"a changed environment: accepted":         {func(l *eiriniv1.LRPSpec) { l.Env = map[string]string{"A": "1"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lrp := smallest()
			lrp.Namespace, lrp.Spec.Version = s.CreateNamespace(t), "1"
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), lrp))
			row.do(&lrp.Spec)
			testenv.ExpectRefused(t, s.Client.Update(t.Context(), lrp), row.says)
		})
	}
}

func (s *served) testColumns(t *testing.T) {
	lrp := smallest()
	lrp.Namespace, lrp.Spec.Version, lrp.Spec.Instances, lrp.Spec.AppName = s.CreateNamespace(t), "7", 3, "shop"
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), lrp))
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	want := eiriniv1.LRPStatus{
		Replicas: 2, DrainingReplicas: 1, ObservedGeneration: 1,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: now, Reason: "Starting", Message: "2 of 3 instances are ready"}},
		Instances:  map[string]eiriniv1.InstanceStatus{"0": {State: "RUNNING", Since: &now}, "1": {State: "CRASHED", Details: "exit code 1"}},
	}
	want.DeepCopyInto(&lrp.Status)
	testenv.ExpectNoError(t, s.Client.SubResource("status").Update(t.Context(), lrp))
	testenv.ExpectNoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(lrp), lrp))
	testenv.ExpectEqual(t, "status", want, lrp.Status)
	table := s.GetTable(t, eiriniv1.GroupVersion().WithResource("lrps"), client.ObjectKeyFromObject(lrp))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, strings.ToUpper(column.Name))
	}
	if got, want := strings.Join(names, " "), "NAME APP REPLICAS READY DRAINING REVISION AGE PROCESS APP GUID WHY"; got != want {
		t.Errorf("found columns %s, want %s", got, want)
	}
	cells := table.Rows[0].Cells
	testenv.ExpectEqual(t, "cells", []any{"test", "shop", 3.0, 2.0, 1.0, "7", "2 of 3 instances are ready"}, append(cells[:6:6], cells[9]))
	lrp.Status.Instances["0"] = eiriniv1.InstanceStatus{State: "UP"}
	testenv.ExpectRefused(t, s.Client.SubResource("status").Update(t.Context(), lrp), "status.instances.0.state: Unsupported value")
}

func (s *served) testFull(t *testing.T) {
	lrp := smallest()
	lrp.Namespace = s.CreateNamespace(t)
	lrp.Spec = eiriniv1.LRPSpec{
		GUID: "g", Version: "7", ProcessType: "web", AppName: "a", AppGUID: "ag", OrgName: "o", OrgGUID: "og", SpaceName: "s", SpaceGUID: "sg",
		Image: "example.com/app:1", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}, Command: []string{"run"},
		Sidecars:        []eiriniv1.Sidecar{{Name: "s", Command: []string{"run"}, MemoryMB: 1, Env: map[string]string{"A": "1"}}},
		PrivateRegistry: &eiriniv1.PrivateRegistry{Username: "u", Password: "p"},
		Env:             map[string]string{"A": "1"}, Environment: []corev1.EnvVar{{Name: "B", Value: "2"}},
		Health: eiriniv1.Healthcheck{Type: "http", Port: 8080, Endpoint: "/", TimeoutMs: 1, InvocationTimeoutMs: 1},
		Ports:  []int32{8080}, Instances: 3, MemoryMB: 1, DiskMB: 1, CPUWeight: 1,
		VolumeMounts: []eiriniv1.VolumeMount{{MountPath: "/m", ClaimName: "c"}}, UserDefinedAnnotations: map[string]string{"a": "b"},
	}
	want := *lrp.Spec.DeepCopy()
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), lrp, client.FieldValidation(metav1.FieldValidationStrict)))
	testenv.ExpectEqual(t, "spec", want, lrp.Spec)
}

func smallest() *eiriniv1.LRP {
	return &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test"},
		Spec:       eiriniv1.LRPSpec{GUID: "g", Image: "example.com/app:1", DiskMB: 64, Instances: 1},
	}
}
