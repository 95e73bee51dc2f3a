// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

// TestDescribe checks one row of an object of each kind, as PART STATE BY STOPPED NEXT.
func TestDescribe(t *testing.T) {
	t.Parallel()
	at, later := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	held := torporv1alpha1.StopRecord{Since: at, By: "alice", Requested: true}
	timed, ended, over := held, held, held
	timed.Until, timed.RequestedUntil = &later, later.Format(time.RFC3339)
	ended.Requested, ended.EndedAt, ended.StartedBy = false, &later, "bob"
	over.Until, over.EndedAt, over.StartedBy = &later, &later, torporv1alpha1.UntilAnnotation
	const nightly = `{"slumber": "nights", "stops": [{"since": "2026-01-01T00:00:00Z", "by": "Slumber nights", "requested": true}]}`
	const slept = `{"slumber": "nights", "stops": [{"since": "2026-01-01T00:00:00Z", "by": "Slumber nights", "endedAt": "2026-01-01T07:00:00Z", "startedBy": "Slumber nights"}]}`
	earlier := ended
	earlier.EndedAt = new(metav1.NewTime(at.Add(time.Hour)))
	malformed := held
	malformed.RequestedUntil = "tomorrow"
	for name, test := range map[string]struct {
		obj  client.Object
		row  int
		want string
	}{
		"a cluster without a status: shown as unknown":                                                              {newCluster("", "", nil), 0, `machines unknown - false -`},
		"a cluster that hibernates: shown as Hibernating":                                                           {newCluster(hivev1.PowerStateHibernating, "Hibernating", nil, held), 0, `machines Hibernating alice true kubectl torpor start -n ns clusterdeployment/x`},
		"a hibernation with an end: shown as Hibernating":                                                           {newCluster(hivev1.PowerStateHibernating, "Hibernating", nil, timed), 0, `machines Hibernating alice true starts by itself`},
		"a hibernation whose end has passed: shown as Running":                                                      {newCluster(hivev1.PowerStateHibernating, "Running", nil, over), 0, `machines Running torpor.dev/until false -`},
		"a cluster resumed by a user: shown as Running":                                                             {newCluster(hivev1.PowerStateRunning, "Running", nil, ended), 0, `machines Running bob false -`},
		"a cluster whose requested stop no controller has observed: shown as Running":                               {newCluster(hivev1.PowerStateHibernating, "Running", nil, ended), 0, `machines Running - true kubectl torpor start -n ns clusterdeployment/x`},
		"a cluster whose requested start no controller has observed: shown as Hibernating":                          {newCluster(hivev1.PowerStateRunning, "Hibernating", nil, held), 0, `machines Hibernating - false -`},
		"a hibernation by hibernateAfter: shown as Hibernating":                                                     {newCluster("", "Hibernating", &hivev1.HibernationRecord{SleepStartedAt: at, RequestedBy: "hibernateAfter", PowerStateBefore: new(hivev1.PowerState(""))}), 0, `machines Hibernating hibernateAfter true resumes when the annotation torpor.dev/resume-requested-at has a later time, in RFC 3339`},
		"a cluster that is stuck: shown as FailedToStop":                                                            {withCondition(newCluster(hivev1.PowerStateHibernating, "FailedToStop", nil, held), hivev1.ClusterStalledCondition, "FailedToStop"), 0, `machines FailedToStop alice true it is stuck: said`},
		"a hibernation with a malformed end: shown as Hibernating":                                                  {newCluster(hivev1.PowerStateHibernating, "Hibernating", nil, malformed), 0, `machines Hibernating alice true torpor.dev/until is ignored: expected a time such as 2026-11-20T22:00:00Z or a duration such as 8h, found "tomorrow"; correct or remove it`},
		"an app that stops: shown as stopping":                                                                      {newApp(korifiv1alpha1.StoppedState, korifiv1alpha1.RunningReason, held), 0, `app stopping alice true kubectl torpor start -n ns cfapp/x`},
		"an app that is stopped: shown as stopped":                                                                  {newApp(korifiv1alpha1.StoppedState, korifiv1alpha1.StoppedReason, timed), 0, `app stopped alice true starts by itself`},
		"an app that starts: shown as starting":                                                                     {newApp(korifiv1alpha1.StartedState, korifiv1alpha1.StoppedReason, ended), 0, `app starting bob false -`},
		"an app that runs: shown as running":                                                                        {newApp(korifiv1alpha1.StartedState, korifiv1alpha1.RunningReason), 0, `app running - false -`},
		"an app with the condition Blocked: shown as starting":                                                      {newApp(korifiv1alpha1.StartedState, korifiv1alpha1.BlockedReason), 0, `app starting - false it is stuck: said`},
		"a MySQLCluster whose clustering is requested to stop: shown as stopping":                                   {newMySQL(mocov1beta2.ClusteringStoppedAnnotation, "true", held), 0, `clustering stopping alice true -`},
		"reconciliation of a MySQLCluster whose clustering is requested to stop: shown as unknown":                  {newMySQL(mocov1beta2.ClusteringStoppedAnnotation, "true", held), 1, `reconciliation unknown - false -`},
		"clustering with an annotation value that stops nothing: shown as unknown":                                  {newMySQL(mocov1beta2.ClusteringStoppedAnnotation, "yes"), 0, `clustering unknown - false the annotation moco.cybozu.com/clustering-stopped="yes" stops nothing; remove it: kubectl moco start -n ns clustering x`},
		"an empty list of stopped instances: instances shown as running":                                            {newMySQL(mocov1beta2.StoppedInstancesAnnotation, "[]"), 2, `instances running - false -`},
		"a malformed list of stopped instances: instances shown as running":                                         {newMySQL(mocov1beta2.StoppedInstancesAnnotation, "1,2"), 2, `instances running - false -`},
		"instances whose clustering is stopped: shown as stopped":                                                   {newMySQL(mocov1beta2.StoppedInstancesAnnotation, "[1,2]"), 2, `instances stopped - true kubectl annotate -n ns mysqlcluster x moco.cybozu.com/clustering-stopped-instances-`},
		"a Deployment that runs: shown as running":                                                                  {newDeployment(t, 3, 3), 0, `replicas running - false -`},
		"a Deployment scaled to zero by a user: shown as stopped":                                                   {newDeployment(t, 0, 0), 0, `replicas stopped - false -`},
		"a Deployment that is stopped: shown as stopped":                                                            {keepStopped(newDeployment(t, 0, 0, held)), 0, `replicas stopped alice true kubectl torpor start -n ns deployment/x`},
		"a stopped Deployment with Pods that have not ended: shown as stopping":                                     {keepStopped(newDeployment(t, 0, 2, timed)), 0, `replicas stopping alice true starts by itself`},
		"a Deployment started by a user: shown as starting":                                                         {newDeployment(t, 3, 1, ended), 0, `replicas starting bob false -`},
		"a Deployment whose requested stop no manager has observed: shown as stopping":                              {askToStop(newDeployment(t, 3, 3, ended)), 0, `replicas stopping - true waits for a manager with the feature workloads`},
		"a Deployment whose requested start no manager has observed: shown as starting":                             {annotateObject(keepStopped(newDeployment(t, 0, 0, held)), torporv1alpha1.StoppedAnnotation, "false"), 0, `replicas starting - false -`},
		"a Deployment whose stop is refused: shown as stopping":                                                     {annotateObject(askToStop(newDeployment(t, 3, 3, held)), torporv1alpha1.StopRefusedAnnotation, "said"), 0, `replicas stopping alice true it is stuck: said`},
		"a Deployment that a Slumber stops: shown as stopped":                                                       {annotateObject(withRestore(newDeployment(t, 0, 0)), torporv1alpha1.SlumberAnnotationPrefix+"nights", nightly), 0, `replicas stopped Slumber nights true kubectl torpor skip -n ns deployment/x`},
		"a Deployment that a user scaled during a Slumber's stop: shown as running, started by the user":            {annotateObject(annotateObject(newDeployment(t, 3, 3), torporv1alpha1.SlumberAnnotationPrefix+"nights", nightly), torporv1alpha1.ResumedAnnotation, "2026-01-01T01:00:00Z unknown (field manager kubectl-scale)"), 0, `replicas running unknown (field manager kubectl-scale) false -`},
		"a Deployment that only a Slumber has stopped and started: shown as running, started by the Slumber":        {annotateObject(newDeployment(t, 3, 3), torporv1alpha1.SlumberAnnotationPrefix+"nights", slept), 0, `replicas running Slumber nights false -`},
		"a Deployment that a user started, and later a Slumber: shown as running, started by the Slumber":           {annotateObject(newDeployment(t, 3, 3, earlier), torporv1alpha1.SlumberAnnotationPrefix+"nights", slept), 0, `replicas running Slumber nights false -`},
		"a Deployment that a Slumber started, and later a user: shown as running, started by the user":              {annotateObject(newDeployment(t, 3, 3, ended), torporv1alpha1.SlumberAnnotationPrefix+"nights", slept), 0, `replicas running bob false -`},
		"a Deployment with a manual start after a Slumber's stop, not yet observed by a manager: shown as starting": {annotateObject(annotateObject(keepStopped(newDeployment(t, 0, 0, held)), torporv1alpha1.SlumberAnnotationPrefix+"nights", slept), torporv1alpha1.StoppedAnnotation, "false"), 0, `replicas starting - false -`},
		"an app that a Slumber started: shown as running, started by the Slumber":                                   {withAnnotation(newApp(korifiv1alpha1.StartedState, korifiv1alpha1.RunningReason), torporv1alpha1.SlumberAnnotationPrefix+"nights", slept), 0, `app running Slumber nights false -`},
		"a MySQLCluster whose stop of clustering has just expired: shown as stopping":                               {newMySQL(mocov1beta2.ClusteringStoppedAnnotation, "true", over), 0, `clustering stopping torpor.dev/until false -`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, k := range kinds.ListBuiltIn() {
				if k.GVK().Kind != test.obj.GetObjectKind().GroupVersionKind().Kind {
					continue
				}
				r := k.DescribeRows(test.obj)[test.row]
				got := strings.Join([]string{r.Part, r.State, formatCell(r.By), map[bool]string{true: "true", false: "false"}[r.Stopped], formatCell(r.Next)}, " ")
				if got != test.want {
					t.Errorf("found %s\n want %s", got, test.want)
				}
				return
			}
			t.Errorf("expected a kind for %T, found none", test.obj)
		})
	}
}

// TestEveryKindCanBePlanned plans a stop and a start of every stoppable kind, for each part that the verbs support.
// The error for a kind without a plan lists the kinds with one.
func TestEveryKindCanBePlanned(t *testing.T) {
	t.Parallel()
	for _, seam := range kinds.ListBuiltIn() {
		k, err := findBuiltIn(seam.GVK().Kind)
		if err != nil {
			t.Errorf("%s: expected the plugin to support the kind, found: %v", seam.GVK().Kind, err)
			continue
		}
		if _, isPlanned := k.Definition.(kinds.Planner); !isPlanned || len(k.PartNames()) == 0 || k.GVK() != seam.GVK() {
			t.Errorf("%s: expected a plan for at least one part, found none", seam.GVK().Kind)
		}
		obj := k.New()
		obj.SetName("x")
		for _, part := range k.PartNames() {
			if row := (target{kind: k, name: "x", part: part}).findRow(obj); row.Part != part {
				t.Errorf("%s: expected a row for the part %s, found %+v", seam.GVK().Kind, part, row)
			}
		}
	}
	app, err := findBuiltIn("cfapp")
	if err != nil {
		t.Fatal(err)
	}
	unplanned := kinds.Kind{Definition: struct{ kinds.Definition }{app.Definition}}
	_, err = planCommand{&verbCommand{verb: stopVerb}}.plan(t.Context(), nil, target{kind: unplanned, name: "x", part: "app"}, time.Time{})
	if wrong, isUsage := errors.AsType[exit.Error](err); !isUsage || wrong.Code != exit.Usage || !strings.Contains(err.Error(), "expected a kind with a plan, one of clusterdeployment, mysqlcluster") {
		t.Errorf("expected an error of usage with the kinds that can be planned, found %v", err)
	}
}

func newCluster(asked hivev1.PowerState, state string, record *hivev1.HibernationRecord, stops ...torporv1alpha1.StopRecord) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
	cd.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
	cd.Spec.PowerState, cd.Status.PowerState, cd.Status.Hibernation, cd.Status.Stops = asked, state, record, stops
	return cd
}

func withCondition(cd *hivev1.ClusterDeployment, condition, reason string) *hivev1.ClusterDeployment {
	cd.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "said"}}
	return cd
}

func TestARestartIsOverWhenNoOlderInstanceIsLeft(t *testing.T) {
	t.Parallel()
	app, err := findBuiltIn("cfapp")
	restarter, isRestarted := app.Definition.(kinds.Restarter)
	if err != nil || !isRestarted {
		t.Fatalf("expected apps that restart, found %v", err)
	}
	build := func(state korifiv1alpha1.AppState, reason, revision string, observed int64, draining metav1.ConditionStatus) *korifiv1alpha1.CFApp {
		app := newApp(state, reason)
		app.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: revision}
		app.Status.ObservedRevision = observed
		isReady := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[reason != korifiv1alpha1.StartingReason]
		app.Status.Conditions = []metav1.Condition{
			{Type: korifiv1alpha1.ReadyCondition, Status: isReady, Reason: reason}, {Type: korifiv1alpha1.DrainingCondition, Status: draining, Reason: "x"},
		}
		return app
	}
	const started, stopped = korifiv1alpha1.StartedState, korifiv1alpha1.StoppedState
	const running, starting = korifiv1alpha1.RunningReason, korifiv1alpha1.StartingReason
	for name, row := range map[string]struct {
		app             *korifiv1alpha1.CFApp
		wanted, settled int64
	}{
		"an app that runs the requested revision: settled":                                     {build(started, running, "3", 3, metav1.ConditionFalse), 3, 3},
		"an app whose requested revision is not observed yet: the earlier revision is settled": {build(started, running, "4", 3, metav1.ConditionFalse), 4, 3},
		"an app whose instances are starting: not settled":                                     {build(started, starting, "4", 4, metav1.ConditionFalse), 4, 0},
		"an app with instances of an old revision: not settled":                                {build(started, running, "4", 4, metav1.ConditionTrue), 4, 0},
		"a stopped app: settled":                                                               {build(stopped, korifiv1alpha1.StoppedReason, "4", 4, metav1.ConditionFalse), 4, 4},
		"an app without a revision: not settled":                                               {build(started, running, "", 0, metav1.ConditionFalse), 0, 0},
	} {
		if wanted, settled := restarter.ReadRevisions(row.app); wanted != row.wanted || settled != row.settled {
			t.Errorf("%s: expected the revisions %d and %d, found %d and %d", name, row.wanted, row.settled, wanted, settled)
		}
	}
}

func newApp(asked korifiv1alpha1.AppState, reason string, stops ...torporv1alpha1.StopRecord) *korifiv1alpha1.CFApp {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
	app.SetGroupVersionKind(korifiv1alpha1.CFAppKind())
	app.Spec.DesiredState, app.Status.Stops = asked, stops
	app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Reason: reason, Message: "said"}}
	return app
}

func newMySQL(annotation, value string, stops ...torporv1alpha1.StopRecord) *mocov1beta2.MySQLCluster {
	c := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Annotations: map[string]string{annotation: value}}}
	c.SetGroupVersionKind(mocov1beta2.MySQLClusterKind())
	c.Status.ClusteringStops = stops
	return c
}

func withAnnotation[T kinds.Object](obj T, name, value string) T {
	kinds.SetAnnotation(obj, name, value)
	return obj
}

// newDeployment returns a Deployment with the given number of Pods, all of which are ready.
func newDeployment(t *testing.T, replicas, pods int64, stops ...torporv1alpha1.StopRecord) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"replicas": replicas},
		"status": map[string]any{"replicas": pods, "availableReplicas": pods},
	}}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	u.SetNamespace("ns")
	u.SetName("x")
	if len(stops) == 0 {
		return u
	}
	text, err := json.Marshal(stops)
	if err != nil {
		t.Fatal(err)
	}
	return annotateObject(u, torporv1alpha1.StopsAnnotation, string(text))
}

func annotateObject(u *unstructured.Unstructured, name, value string) *unstructured.Unstructured {
	kinds.SetAnnotation(u, name, value)
	return u
}

func askToStop(u *unstructured.Unstructured) *unstructured.Unstructured {
	return annotateObject(u, torporv1alpha1.StoppedAnnotation, "true")
}

func withRestore(u *unstructured.Unstructured) *unstructured.Unstructured {
	return annotateObject(u, torporv1alpha1.RestoreAnnotation, `[{"path": "/spec/replicas", "before": 3, "after": 0}]`)
}

// keepStopped changes a Deployment as the manager does for a stop.
func keepStopped(u *unstructured.Unstructured) *unstructured.Unstructured {
	return withRestore(askToStop(u))
}

// findBuiltIn returns the built-in kind with a name.
func findBuiltIn(name string) (kinds.Kind, error) {
	known := kinds.ListBuiltIn()
	return chooseKind(known, matchKinds(known, name), name, name)
}

// TestParseArguments maps arguments to the parsed kinds, each with a colon, and objects.
func TestParseArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "cd": "ClusterDeployment:", "cd,deploy": "ClusterDeployment: Deployment:", "cd x y": "ClusterDeployment/x ClusterDeployment/y",
		"cd,sts x": "ClusterDeployment/x StatefulSet/x",
		"deploy/x": "Deployment/x", "statefulsets/x": "StatefulSet/x", "cj/x": "CronJob/x", "cd/x": "ClusterDeployment/x", "MySQLCluster/x": "MySQLCluster/x", "cfapps/a.b": "CFApp/a.b",
		"clusterdeployment.hive.openshift.io/x deployment.apps/y":               "ClusterDeployment/x Deployment/y",
		"mysqlclusters.v1beta2.moco.cybozu.com/x cfapp.korifi.cloudfoundry.org": "wrong",
		"statefulsets.v1.apps/x": "StatefulSet/x", "cronjob.batch/x": "CronJob/x", "cd.apps/x": "wrong", "deploy.v2.apps/x": "wrong", "deploy./x": "wrong",
		"x": "wrong", "cfapp/": "wrong", "/x": "wrong", "pod/x": "wrong", "cfapp/x/y": "wrong", "cd,": "wrong", ",": "wrong", "cd cfapp/x": "wrong", "cd/x cfapp": "wrong",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			parsed, err := parseArguments(strings.Fields(text))
			var found []string
			add := func(kindName, text, rest string) {
				k, findErr := chooseKind(kinds.ListBuiltIn(), matchKinds(kinds.ListBuiltIn(), kindName), kindName, text)
				if err = errors.Join(err, findErr); findErr == nil {
					found = append(found, k.GVK().Kind+rest)
				}
			}
			for _, kindName := range parsed.kindNames {
				add(kindName, kindName, ":")
			}
			for _, o := range parsed.objects {
				add(o.kindName, o.String(), "/"+o.name)
			}
			got := strings.Join(found, " ")
			if err != nil {
				got = "wrong"
			}
			if got != want || want == "wrong" && exit.CodeOf(err) != exit.Usage {
				t.Errorf("expected %q, found %q and %v", want, got, err)
			}
		})
	}
}

func TestFormatCell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "-", " \n": "-", "a\nb\tc": "a b c", "a\x1b[2Jb": "a[2Jb", "für später": "für später",
	} {
		if got := formatCell(text); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

// TestForeignObjectsReportThePendingCondition uses a Kustomization without a status, so the expressions of its
// StopAdapter have no result.
func TestForeignObjectsReportThePendingCondition(t *testing.T) {
	t.Parallel()
	k, err := stopadapter.NewKind(&torporv1alpha1.StopAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: "kustomizations.kustomize.toolkit.fluxcd.io"},
		Spec: torporv1alpha1.StopAdapterSpec{
			Target: torporv1alpha1.StopAdapterTarget{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization", Resource: "kustomizations"},
			Stop:   []torporv1alpha1.StopOperation{{Op: torporv1alpha1.AddOperation, Path: "/spec/suspend", Value: &torporv1alpha1.JSONValue{Raw: []byte("true")}}},
			State:  torporv1alpha1.StopAdapterState{Awake: "object.status.ready"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, annotations := range map[string]map[string]string{
		"stopped ": {torporv1alpha1.StoppedAnnotation: "true", torporv1alpha1.RestoreAnnotation: `[{"path":"/spec/suspend","after":true}]`},
		`starting "object.status.ready": no such key: ready`: {torporv1alpha1.StoppedAnnotation: "false"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": annotations[torporv1alpha1.RestoreAnnotation] != ""}}}
		u.SetGroupVersionKind(k.GVK())
		u.SetAnnotations(annotations)
		if s := k.DescribeRows(u)[0]; s.State+" "+s.Message != want {
			t.Errorf("expected %q, found %q", want, s.State+" "+s.Message)
		}
	}
}

// TestAttention has a row for each class by which tables are sorted.
func TestAttention(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	passed, toCome := metav1.NewTime(now.Add(-2*time.Hour)), metav1.NewTime(now.Add(time.Hour))
	var sorted []string
	var rows []stopRow
	for _, r := range []kinds.Row{
		{Name: "running", State: "running"},
		{Name: "stopped", State: "stopped", Stopped: true},
		{Name: "ends later", State: "stopped", Stopped: true, Until: &toCome},
		{Name: "unknown", State: "unknown"},
		{Name: "starting", State: "starting"},
		{Name: "stopping", State: "Stopping", Stopped: true},
		{Name: "overdue", State: "Hibernating", Stopped: true, Until: &passed},
		{Name: "overdue and stopping", State: "stopping", Stopped: true, Until: &passed},
		{Name: "failed", State: "FailedToStop", Stopped: true},
		{Name: "refused", State: "stopped", Refusal: "said"},
		{Name: "stuck", State: "starting", Next: kinds.StuckPrefix + "said"},
	} {
		rows = append(rows, stopRow{Row: r})
	}
	sortByAttention(rows, now)
	for _, r := range rows {
		sorted = append(sorted, r.Name)
	}
	const want = "failed, refused, stuck, overdue, overdue and stopping, starting, stopping, stopped, ends later, running, unknown"
	if got := strings.Join(sorted, ", "); got != want {
		t.Errorf("expected %s, found %s", want, got)
	}
}

// TestShownNames uses display names that a terminal or a shell would interpret, and one that is too long.
func TestShownNames(t *testing.T) {
	t.Parallel()
	k, err := findBuiltIn("cfapp")
	if err != nil {
		t.Fatal(err)
	}
	for displayName, want := range map[string]string{
		"shop": "shop", "my_app-1": "my_app-1", strings.Repeat("x", 64): strings.Repeat("x", 64),
		"": "5a3c", "a b": "5a3c", "a/b": "5a3c", "$(id)": "5a3c", "a\x1b[2J": "5a3c", "a\u202eb": "5a3c", "a\n": "5a3c",
		strings.Repeat("x", 65): "5a3c", strings.Repeat("x", 1<<20): "5a3c", "müde": "5a3c",
	} {
		app := newApp(korifiv1alpha1.StartedState, korifiv1alpha1.RunningReason)
		app.Name, app.Spec.DisplayName = "5a3c", displayName
		r := describeRows(k, app)[0]
		if got := r.displayName(); got != "cfapp/"+want {
			t.Errorf("%.40q: expected cfapp/%s, found %.80q", displayName, want, got)
		}
		if r.ObjectName() != "cfapp/5a3c" || len(r.DisplayName) > 250 {
			t.Errorf("%.40q: expected the object 5a3c and a bounded display name, found %s and %d bytes", displayName, r.ObjectName(), len(r.DisplayName))
		}
	}
}

func TestListCandidates(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"cfapp/a and cfapp/b":                             {"a", "b"},
		"cfapp/a, cfapp/b, cfapp/c, cfapp/d and cfapp/e":  {"a", "b", "c", "d", "e"},
		"cfapp/a, cfapp/b, cfapp/c, cfapp/d and 2 others": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := listCandidates("cfapp", names); got != want {
			t.Errorf("expected %s, found %s", want, got)
		}
	}
}
