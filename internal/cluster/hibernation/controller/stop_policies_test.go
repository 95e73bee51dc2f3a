// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// policyCase is a patch of a cluster in a power state, and the API server's refusal. The refusal is empty if the
// patch is admitted.
type policyCase struct {
	from           hivev1.PowerState
	patch, refusal string
}

// TestStopPolicies applies each policy in examples to a real API server.
func TestStopPolicies(t *testing.T) {
	t.Parallel()
	const running, hibernating = hivev1.PowerStateRunning, hivev1.PowerStateHibernating
	stopWith := func(annotation, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"powerState":"Hibernating"}}`, annotation, value)
	}
	const start, stop, unrelated = `{"spec":{"powerState":"Running"}}`, `{"spec":{"powerState":"Hibernating"}}`, `{"metadata":{"labels":{"a":"b"}}}`
	until := func(value string) string { return stopWith(torporv1alpha1.UntilAnnotation, value) }
	for file, cases := range map[string]map[string]policyCase{
		"reason-required.yaml": {
			"stop without a reason is refused":    {running, stop, "expected a reason to hibernate the cluster"},
			"stop with a blank reason is refused": {running, stopWith(torporv1alpha1.ReasonAnnotation, " "), "expected a reason to hibernate the cluster"},
			"stop with a reason is allowed":       {running, stopWith(torporv1alpha1.ReasonAnnotation, "holidays"), ""},
			"start is allowed":                    {hibernating, start, ""},
			"unrelated change is allowed":         {hibernating, unrelated, ""},
		},
		"longest-stop.yaml": {
			"stop without an end is refused":               {running, stop, `expected a duration of 72h at most, such as 8h, found ""`},
			"stop for 73 hours is refused":                 {running, until("73h"), `found "73h"`},
			"stop with a time as its end is refused":       {running, until("2126-01-01T00:00:00Z"), `found "2126-01-01T00:00:00Z"`},
			"stop for 72 hours is allowed":                 {running, until("71h60m"), ""},
			"extension of a stop to 9999 hours is refused": {hibernating, until("9999h"), `found "9999h"`},
			"start is allowed":                             {hibernating, start, ""},
			"unrelated change is allowed":                  {hibernating, unrelated, ""},
		},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := startPolicyServer(t, file)
			testenv.Eventually(t, "the policy is followed", func() error {
				return testenv.ErrorIf(s.try(t, s.Client, policyCase{running, stop, ""}) == nil, "a stop without anything passes")
			})
			for name, row := range cases {
				t.Run(name, func(t *testing.T) { s.expect(t, s.Client, row) })
			}
		})
	}
}

// TestStopVerbs separates the rights to stop and to start by roles.
func TestStopVerbs(t *testing.T) {
	t.Parallel()
	s := startPolicyServer(t, "verbs.yaml")
	grant := func(user string, verbs ...string) {
		s.GrantRights(t, user, rbacv1.PolicyRule{APIGroups: []string{"hive.openshift.io"}, Resources: []string{"clusterdeployments"}, Verbs: append(verbs, "create", "get", "patch")})
	}
	grant("writer")
	grant("stopper", "hibernate")
	grant("starter", "resume")
	grant("owner", "hibernate", "resume")
	const start, stop, unrelated = `{"spec":{"powerState":"Running"}}`, `{"spec":{"powerState":"Hibernating"}}`, `{"metadata":{"labels":{"a":"b"}}}`
	extend := fmt.Sprintf(`{"metadata":{"annotations":{%q:"9h"}}}`, torporv1alpha1.UntilAnnotation)
	const noStop, noStart = "to have the verb hibernate", "to have the verb resume"
	for user, refusals := range map[string]map[string]string{
		"writer":  {stop: noStop, start: noStart, extend: noStop, unrelated: ""},
		"stopper": {stop: "", start: noStart, extend: noStart, unrelated: ""},
		"starter": {stop: noStop, start: "", extend: noStop, unrelated: ""},
		"owner":   {stop: "", start: "", extend: "", unrelated: ""},
	} {
		c, err := client.New(s.ImpersonateUser(user), client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
		testenv.ExpectNoError(t, err)
		testenv.Eventually(t, "the roles of "+user+" and the policy are followed", func() error {
			err := s.try(t, c, policyCase{hivev1.PowerStateRunning, stop, ""})
			isFollowed := refusals[stop] == "" && err == nil || refusals[stop] != "" && k8serrors.IsForbidden(err)
			return errors.Join(testenv.ErrorIf(!isFollowed, "a stop: %v", err), s.try(t, c, policyCase{hivev1.PowerStateRunning, unrelated, ""}))
		})
		for patch, refusal := range refusals {
			from := hivev1.PowerStateHibernating
			if patch == stop {
				from = hivev1.PowerStateRunning
			}
			t.Run(user+" sends "+patch, func(t *testing.T) { s.expect(t, c, policyCase{from, patch, refusal}) })
		}
	}
}

// policyServer is a real API server with one cluster in each power state.
type policyServer struct {
	*testenv.Environment
	namespace string
}

func startPolicyServer(t *testing.T, file string) *policyServer {
	t.Helper()
	s := &policyServer{Environment: testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	s.namespace = s.CreateNamespace(t)
	for _, state := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
		cd := testenv.BuildClusterDeployment(s.clusterIn(state), cloudSecret, adminSecret)
		cd.Spec.PowerState = state
		s.ExpectCreated(t, cd)
	}
	s.ApplyManifest(t, filepath.Join("..", "examples", "policies", file))
	return s
}

func (s *policyServer) clusterIn(state hivev1.PowerState) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: map[hivev1.PowerState]string{hivev1.PowerStateRunning: "runs", hivev1.PowerStateHibernating: "sleeps"}[state]}
}

// try sends a dry run to the API server.
func (s *policyServer) try(t *testing.T, c client.Client, row policyCase) error {
	t.Helper()
	key := s.clusterIn(row.from)
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return c.Patch(t.Context(), cd, rawMerge(row.patch), client.DryRunAll)
}

func (s *policyServer) expect(t *testing.T, c client.Client, row policyCase) {
	t.Helper()
	err := s.try(t, c, row)
	isRefused := (k8serrors.IsInvalid(err) || k8serrors.IsForbidden(err)) && strings.Contains(err.Error(), row.refusal)
	if row.refusal == "" && err != nil || row.refusal != "" && !isRefused {
		t.Errorf("expected the refusal %q, found %v", row.refusal, err)
	}
}
