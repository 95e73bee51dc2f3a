// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func detailsOf(kind, namespace, name, part string) string {
	return "/details?" + url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}, "part": {part}}.Encode()
}

// TestDetailsShowOneObjectToItsReaders reads the details of a stopped cluster as users with different rights.
func TestDetailsShowOneObjectToItsReaders(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	cd := buildCluster(namespace, "fleet")
	cd.Spec.PowerState = hivev1.PowerStateHibernating
	e.ExpectCreated(t, cd)
	now := time.Now().UTC().Truncate(time.Second)
	cd.Status.PowerState = "Hibernating"
	cd.Status.Stops = []torporv1alpha1.StopRecord{
		{Since: metav1.NewTime(now.Add(-time.Hour)), By: "ann@example.com", Reason: "no <b>budget", Requested: true},
		{Since: metav1.NewTime(now.Add(-72 * time.Hour)), By: "bob@example.com", EndedAt: new(metav1.NewTime(now.Add(-48 * time.Hour))), StartedBy: "carl@example.com"},
	}
	cd.Status.Conditions = []metav1.Condition{{
		Type: hivev1.ClusterStalledCondition, Status: metav1.ConditionFalse, Reason: "Settled", Message: "all machines are off", LastTransitionTime: metav1.NewTime(now),
	}}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), cd))
	for i := range maxShownEvents + 5 {
		e.ExpectCreated(t, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("fleet.%d", i)},
			InvolvedObject: corev1.ObjectReference{Kind: "ClusterDeployment", APIVersion: "hive.openshift.io/v1", Namespace: namespace, Name: "fleet", UID: cd.UID},
			Reason:         "Waited", Message: fmt.Sprintf("waited %d times", i), Type: corev1.EventTypeNormal, LastTimestamp: metav1.NewTime(now.Add(time.Duration(i) * time.Second)),
		})
	}
	_, operatorToken := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	_, listerToken := e.createAccount(t, namespace, "lister", "list")
	operator, lister := e.openBrowser(t), e.openBrowser(t)
	operator.logIn(t, operatorToken)
	lister.logIn(t, listerToken)
	address := detailsOf("ClusterDeployment", namespace, "fleet", "machines")
	operator.expectShown(t, address, []string{
		"<!doctype html>", `id="drawer-title"`, "ann@example.com", "no &lt;b&gt;budget", "bob@example.com", "carl@example.com", "all machines are off",
		"Plan of a start", "You may not list the events",
	}, []string{"<b>budget", `data-verb=`})
	e.allowEvents(t, namespace, "operator")
	operator.expectShown(t, address+"&part-of-page=true", []string{fmt.Sprintf("waited %d times", maxShownEvents+4), "waited 5 times", `data-verb="start"`, `data-verb="extend"`}, []string{`data-verb="stop"`, "<!doctype", "waited 4 times"})
	for name, row := range map[string]struct {
		by     *browser
		path   string
		status int
		words  string
	}{
		"caller without a token: the login form is shown": {e.openBrowser(t), address, http.StatusUnauthorized, "Log in"},
		"script without a token: refused":                 {e.openBrowser(t), address + "&part-of-page=true", http.StatusUnauthorized, "Log in again."},
		"caller with the right to list only: refused":     {lister, address, http.StatusForbidden, "cannot get resource"},
		"kind that cannot be stopped: refused":            {operator, detailsOf("Secret", namespace, "fleet", "machines"), http.StatusBadRequest, `found "Secret"`},
		"missing object: not found":                       {operator, detailsOf("ClusterDeployment", namespace, "none", "machines"), http.StatusNotFound, "expected an object"},
		"object without a namespace: refused":             {operator, detailsOf("ClusterDeployment", "", "fleet", "machines"), http.StatusBadRequest, "expected a name and a namespace"},
		"unknown part of a cluster: not found":            {operator, detailsOf("ClusterDeployment", namespace, "fleet", "wheels"), http.StatusNotFound, `found "wheels"`},
		"unknown time zone: refused":                      {operator, address + "&zone=Mars/North", http.StatusBadRequest, `found "Mars/North"`},
		"path outside of the time zone database: refused": {operator, address + "&zone=../../etc/passwd", http.StatusBadRequest, "expected a time zone"},
	} {
		if status, text := row.by.get(t, row.path); status != row.status || !strings.Contains(text, row.words) || strings.Contains(text, "ann@") {
			t.Errorf("%s: expected %d with %q, found %d: %s", name, row.status, row.words, status, text)
		}
	}
}

// TestDetailsPlanAsTheCommandDoes checks the plan for a Deployment if the caller may not list HorizontalPodAutoscalers.
func TestDetailsPlanAsTheCommandDoes(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	e.createDeployment(t, namespace, "web", nil)
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	b := e.openBrowser(t)
	b.logIn(t, token)
	b.expectShown(t, detailsOf("Deployment", namespace, "web", "replicas"), []string{
		"Plan of a stop", "The stop lasts until a user runs: ", "Expected permission to list HorizontalPodAutoscalers", "No stop is recorded.",
	}, nil)
}

// TestStopsOfTheDrawerAreFew covers a record with more stops than the drawer shows.
func TestStopsOfTheDrawerAreFew(t *testing.T) {
	t.Parallel()
	row := kinds.Row{}
	for i := range maxPastStops + 3 {
		row.PastScheduled = append(row.PastScheduled, torporv1alpha1.StopRecord{Since: metav1.NewTime(time.Unix(int64(i), 0)), By: "ann", UntilBy: "ann"})
	}
	stops, more := listStops(row)
	testenv.ExpectEqual(t, "stops and more", fmt.Sprint(maxPastStops, " ", 3), fmt.Sprint(len(stops), " ", more))
	testenv.ExpectEqual(t, "the newest", "1970-01-01T00:00:22Z", stops[0].Since.Machine)
	testenv.ExpectEqual(t, "the author of its end", "", stops[0].UntilBy)
}

// TestVerbsOfASwitch lists the actions on switches in several states.
func TestVerbsOfASwitch(t *testing.T) {
	t.Parallel()
	running, asked, scheduled := buildCluster("ns", "a"), buildCluster("ns", "b"), buildCluster("ns", "c")
	asked.Spec.PowerState = hivev1.PowerStateHibernating
	scheduled.Status.ScheduledStops = []torporv1alpha1.ScheduledStop{{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Unix(0, 0)), Requested: true}}}}
	for want, cd := range map[string]*hivev1.ClusterDeployment{"[stop skip]": running, "[start extend]": asked, "[skip]": scheduled} {
		testenv.ExpectEqual(t, cd.Name, want, fmt.Sprint(listVerbs(newListing(clusterDeployments(t), cd).switches[0])))
	}
	c := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: "ns", Name: "orders"}, 3)
	testenv.ExpectEqual(t, "a part of a database", "[stop]", fmt.Sprint(listVerbs(newListing(findKind(t, "MySQLCluster"), c).switches[0])))
}
