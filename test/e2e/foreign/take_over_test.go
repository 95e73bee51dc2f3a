// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of the application
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	backupcontroller "github.com/torpor-dev/torpor/internal/mysql/backup/controller"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	provisioningcontroller "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
	"github.com/torpor-dev/torpor/internal/reconcile"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

// applyAs creates the objects in a file of testdata, and their status if there is one, as one of upstream's
// controllers. It replaces names in capitals; a replacement may be the UID of an object created before.
func applyAs(t *testing.T, env *testenv.Environment, owner, file string, replace func(kind string, made *unstructured.Unstructured) map[string]string) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "objects", file))
	testenv.ExpectNoError(t, err)
	names, made := replace("", nil), map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		for _, old := range slices.SortedFunc(mapKeys(names), func(a, b string) int { return len(b) - len(a) }) {
			document = strings.ReplaceAll(document, old, names[old])
		}
		u := &unstructured.Unstructured{}
		testenv.ExpectNoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		status, hasStatus := u.Object["status"]
		delete(u.Object, "status")
		testenv.ExpectNoError(t, env.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership))
		if hasStatus {
			u.Object["status"] = status
			testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), u, client.FieldOwner(owner)))
		}
		made[u.GetKind()] = u
		maps.Copy(names, replace(u.GetKind(), u))
	}
	return made
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// mocosCluster is a MySQLCluster with three servers, created by MOCO; the last one is its primary.
type mocosCluster struct {
	*mysqlpods.PodCluster
	cluster *mocov1beta2.MySQLCluster
	set     *appsv1.StatefulSet
	cron    *batchv1.CronJob
}

const mocosPrimary = 2

func createMOCOsCluster(t *testing.T, env *testenv.Environment) *mocosCluster {
	t.Helper()
	env.InstallCRDs(t, crdFile("mysqlclusters"), filepath.Join("..", "..", "..", "config", "crd", "moco.cybozu.com_backuppolicies.yaml"))
	m := &mocosCluster{PodCluster: mysqlpods.StartCluster(t, env, 3, mysqlpods.ClusterOptions{})}
	m.cluster = testenv.BuildMySQLCluster(t, m.Name, 3)
	m.cluster.Finalizers, m.cluster.Spec.ServerIDBase = []string{mocov1beta2.Finalizer}, 1000
	m.cluster.Spec.Collectors, m.cluster.Spec.BackupPolicyName = []string{"info_schema.innodb_metrics"}, new("daily")
	m.cluster.Spec.AgentUseLocalhost = true
	policy := testenv.DecodeObject(t, `{"metadata":{"name":"daily","namespace":"`+m.Name.Namespace+`"},"spec":{"schedule":"@daily","jobConfig":{
		"serviceAccountName":"backup","bucketConfig":{"bucketName":"backups"},"workVolume":{"emptyDir":{}}}}}`, &mocov1beta2.BackupPolicy{})
	env.ExpectCreated(t, policy, m.cluster)
	m.cluster.Status.CurrentPrimaryIndex, m.cluster.Status.SyncedReplicas = mocosPrimary, 3
	for _, kind := range []string{mocov1beta2.InitializedCondition, mocov1beta2.AvailableCondition, mocov1beta2.HealthyCondition} {
		m.cluster.Status.Conditions = append(m.cluster.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Healthy", Message: "the current state is Healthy", LastTransitionTime: metav1.Unix(1, 0),
		})
	}
	testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), m.cluster, client.FieldOwner("moco-controller")))
	applyAs(t, env, "moco-controller", "moco.yaml", func(string, *unstructured.Unstructured) map[string]string {
		names := map[string]string{"NAMESPACE": m.Name.Namespace, "OWNER": string(m.cluster.UID)}
		for key, password := range mysqld.ProductPasswords() {
			names[key+": PASSWORD"] = key + ": " + base64.StdEncoding.EncodeToString(password)
		}
		return names
	})
	named := metav1.ObjectMeta{Namespace: m.Name.Namespace, Name: "moco-test"}
	m.set, m.cron = &appsv1.StatefulSet{ObjectMeta: named}, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: named.Namespace, Name: "moco-backup-test"}}
	// Another one of MOCO's controllers lowers the partition with an update.
	testenv.ExpectPatched(t, env, m.set, func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2)) }, client.FieldOwner("moco-controller"))
	m.query(t, mocosPrimary, "set global read_only = off")
	m.query(t, mocosPrimary, "create database shop")
	return m
}

func (m *mocosCluster) query(t *testing.T, instance int, statement string) {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s:%d)/", mysqlpods.RootUser, mysqlpods.RootPassword, m.Servers[instance].Address, mysqld.Port))
	testenv.ExpectNoError(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), statement)
	testenv.ExpectNoError(t, err)
}

// start runs groups of controllers until the test ends.
func (m *mocosCluster) start(t *testing.T, limited *testenv.Environment, groups ...string) {
	t.Helper()
	testenv.StartManager(t, limited, func(mgr ctrl.Manager) error {
		guard := func(feature string) *reconcile.WriterGuard {
			return &reconcile.WriterGuard{Feature: feature, Signs: &reconcile.UpstreamSigns{Upstream: otherwriter.MOCO(), Reader: mgr.GetAPIReader()}}
		}
		setups := map[string]func(ctrl.Manager) error{
			"clustering": clusteringcontroller.Controller{
				HostOf: func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return m.PodAddresses()[i] },
				Clock:  clock.RealClock{}, Metrics: clusteringcontroller.NewMetrics(), Guard: guard("clustering"),
			}.SetupWithManager,
			"backup":       backupcontroller.Controller{Image: "torpor", Clock: clock.RealClock{}, Metrics: backupcontroller.NewMetrics(), Guard: guard("backup")}.SetupWithManager,
			"provisioning": provisioningcontroller.Controller{Clock: clock.RealClock{}, Metrics: provisioningcontroller.NewMetrics(), ExporterImage: "exporter:1", Guard: guard("provisioning")}.SetupWithManager,
		}
		for _, group := range groups {
			if err := setups[group](mgr); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestMOCOsClusterIsTakenOver starts without consent, continues with consent but without the group provisioning, and
// ends with all groups.
func TestMOCOsClusterIsTakenOver(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	limited, _ := asManager(t, env)
	m := createMOCOsCluster(t, env)
	read := func(obj client.Object) string {
		t.Helper()
		testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
		return obj.GetResourceVersion()
	}
	set, cron := read(m.set), read(m.cron)
	claims := m.set.Spec.VolumeClaimTemplates

	m.start(t, limited, "clustering", "backup")
	env.WaitForCondition(t, m.cluster, torporv1alpha1.AnotherWriterCondition, metav1.ConditionTrue, torporv1alpha1.AnotherWriterReason)
	testenv.Consistently(t, 3*time.Second, "nothing is written without consent", func() error {
		primary, err := m.FindPrimaryPod(t.Context())
		return errors.Join(err, testenv.ErrorIf(primary >= 0 || read(m.set) != set || read(m.cron) != cron, "found an object written, or a Pod with a role"))
	})

	env.ExpectAnnotated(t, m.cluster, map[string]string{torporv1alpha1.TakeOverAnnotation: "true"})
	m.expectHealthy(t)
	env.WaitFor(t, "only Torpor manages the Job of the backup", m.cron, func() error {
		pod := m.cron.Spec.JobTemplate.Spec.Template.Spec
		return testenv.ErrorIf(len(pod.Containers) != 1 || pod.Containers[0].Name == "backup", "found the containers %v", containerNames(pod.Containers))
	})
	if read(m.set) != set {
		t.Error("expected MOCO's StatefulSet as it was while provisioning is left off, found it written")
	}

	t.Log("With provisioning.")
	m.start(t, limited, "provisioning")
	env.WaitForCondition(t, m.cluster, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue, mocov1beta2.ReconcileSuccessReason)
	env.WaitFor(t, "only Torpor manages the StatefulSet", m.set, func() error {
		pod := m.set.Spec.Template.Spec
		names, inits := containerNames(pod.Containers), containerNames(pod.InitContainers)
		mine := slices.Equal(names, []string{mocov1beta2.MysqldContainer, mocov1beta2.SlowLogContainer, mocov1beta2.ExporterContainer}) && slices.Equal(inits, []string{"moco-init"}) && m.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
		return testenv.ErrorIf(!mine || m.set.Spec.UpdateStrategy.RollingUpdate != nil, "found %v, %v, %+v", names, inits, m.set.Spec.UpdateStrategy)
	})
	if server := m.set.Spec.Template.Spec.Containers[0]; len(server.Args) != 0 || server.ReadinessProbe.HTTPGet != nil || len(server.Ports) != 3 {
		t.Errorf("expected nothing of MOCO's container, found %+v", server)
	}
	if slowLog, server := m.set.Spec.Template.Spec.Containers[1], m.set.Spec.Template.Spec.Containers[0]; slowLog.Image != server.Image || len(slowLog.VolumeMounts) != 2 {
		t.Errorf("expected nothing of MOCO's slow-log container, found %+v", slowLog)
	}
	testenv.ExpectEqual(t, "the claims, which no StatefulSet changes", claims, m.set.Spec.VolumeClaimTemplates)
	secret := &corev1.Secret{ObjectMeta: m.set.ObjectMeta}
	read(secret)
	testenv.ExpectEqual(t, "MOCO's passwords", mysqld.ProductPasswords(), secret.Data)
	m.expectHealthy(t)
	ignored := env.WaitForCondition(t, m.cluster, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionFalse, mocov1beta2.FieldsIgnoredReason)
	if !strings.Contains(ignored.Message, "spec.agentUseLocalhost") {
		t.Errorf("expected the condition to name MOCO's features that Torpor lacks, found %q", ignored.Message)
	}
	m.expectRolloutOfReplicasFirst(t)
}

func (m *mocosCluster) expectHealthy(t *testing.T) {
	t.Helper()
	m.Env.WaitFor(t, "the cluster is healthy with MOCO's primary", m.cluster, func() error {
		primary, err := m.FindPrimaryPod(t.Context())
		return errors.Join(err, checkObserved(m.cluster, m.cluster.Status.Conditions, mocov1beta2.HealthyCondition, mocov1beta2.HealthyReason),
			testenv.ErrorIf(primary != mocosPrimary || m.cluster.Status.CurrentPrimaryIndex != mocosPrimary, "found the primary %d", primary))
	})
}

// expectRolloutOfReplicasFirst writes the status for the new template as the StatefulSet controller does: MOCO's
// Pods are of an older revision. The primary has the highest ordinal, so the first Pod that may be replaced is Pod 1.
func (m *mocosCluster) expectRolloutOfReplicasFirst(t *testing.T) {
	t.Helper()
	m.set.Status.ObservedGeneration, m.set.Status.UpdateRevision, m.set.Status.Replicas = m.set.Generation, "torpors", 3
	testenv.ExpectNoError(t, m.Env.Client.Status().Update(t.Context(), m.set))
	testenv.Eventually(t, "the first replica is replaced", func() error {
		pod := &corev1.Pod{}
		err := m.Env.Client.Get(t.Context(), m.PodKey(mocosPrimary-1), pod)
		return testenv.ErrorIf(err == nil && pod.DeletionTimestamp.IsZero(), "found it unchanged")
	})
	waits := m.Env.WaitForCondition(t, m.cluster, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, mocov1beta2.StatefulSetNotReadyReason)
	t.Logf("StatefulSetReady: %s", waits.Message)
	for _, i := range []int{0, mocosPrimary} {
		pod := &corev1.Pod{}
		if err := m.Env.Client.Get(t.Context(), m.PodKey(i), pod); err != nil || !pod.DeletionTimestamp.IsZero() {
			t.Errorf("expected Pod %d to wait, found it gone (%v)", i, err)
		}
	}
}

func containerNames(containers []corev1.Container) []string {
	var names []string
	for _, c := range containers {
		names = append(names, c.Name)
	}
	return names
}

// TestKorifisAppIsTakenOver has an app with Pods created by Korifi's runner. The two projects use different names
// for a process.
func TestKorifisAppIsTakenOver(t *testing.T) {
	t.Parallel()
	binary := testenv.TorporPath(t)
	env := testenv.StartControlPlane(t, 1)
	env.InstallCRDs(t)
	env.InstallCRDs(t, crdFile("cfapps"), crdFile("appworkloads"))
	namespace := env.CreateNamespace(t)
	const guid, process = "5f4d6c0e-1d0b-4a52-9a44-6f1f2f0a7c11", "9e6a4b38-2a0c-5f0e-8b53-0f9f0f6a1d77"
	made := applyAs(t, env, "manager", "korifi.yaml", func(kind string, u *unstructured.Unstructured) map[string]string {
		switch kind {
		case "CFApp":
			return map[string]string{"APPUID": string(u.GetUID())}
		case "CFProcess":
			return map[string]string{"PROCESSUID": string(u.GetUID())}
		case "AppWorkload":
			return map[string]string{"WORKLOADUID": string(u.GetUID())}
		}
		return map[string]string{"NAMESPACE": namespace, "APP": guid, "PROCESS": process}
	})
	app, proc := &korifiv1alpha1.CFApp{}, &korifiv1alpha1.CFProcess{}
	testenv.ExpectNoError(t, errors.Join(runtime.DefaultUnstructuredConverter.FromUnstructured(made["CFApp"].Object, app),
		runtime.DefaultUnstructuredConverter.FromUnstructured(made["CFProcess"].Object, proc)))
	countPods := func(labels ...string) int {
		t.Helper()
		var pods corev1.PodList
		testenv.ExpectNoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(namespace), client.HasLabels(labels)))
		return len(pods.Items)
	}
	testenv.Eventually(t, "Korifi's Pods run", func() error {
		n := countPods(korifiv1alpha1.AppWorkloadGUIDLabel)
		return testenv.ErrorIf(n != 2, "found %d", n)
	})

	address := testenv.FreeAddress(t)
	env.InstallWebhooks(t, "https://"+address, nil)
	testenv.StartProcess(t, binary, []string{
		"manager", "--kubeconfig", env.KubeconfigPath(t), "--namespace", namespace, "--metrics-address=0", "--probe-address=0",
		"--webhook-address", address, "--controllers=*,-hibernation",
	}, nil)
	env.WaitForAppAdmission(t, namespace, korifiv1alpha1.FirstRevision)
	env.WaitForCondition(t, app, torporv1alpha1.AnotherWriterCondition, metav1.ConditionTrue, torporv1alpha1.AnotherWriterReason)

	takeOver := func(wantCode int, arguments ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"take-over-korifi", "--kubeconfig", env.KubeconfigPath(t)}, arguments...)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != wantCode {
			t.Fatalf("expected the exit code %d, found %d (%v): %s", wantCode, code, err, out)
		}
		return string(out)
	}
	t.Log("Korifi's webhooks are still there.")
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "korifi-controllers-validating-webhook-configuration"}}
	env.ExpectCreated(t, webhook)
	if out := takeOver(4); !strings.Contains(out, "kubectl delete") {
		t.Errorf("expected the command to type, found %s", out)
	}
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), webhook))
	t.Log("A dry run prints the steps.")
	plan := takeOver(0, "--dry-run")
	if n := countPods(korifiv1alpha1.AppWorkloadGUIDLabel); n != 2 || strings.Count(plan, "would ") != 10 {
		t.Errorf("expected nothing to be done with 10 objects, found %d Pods and %s", n, plan)
	}

	t.Log("Korifi's StatefulSet is kept for a while.")
	set := made["StatefulSet"]
	testenv.ExpectNoError(t, env.Client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/stay"]}}`))))
	t.Log(takeOver(0))
	waits := env.WaitForCondition(t, proc, korifiv1alpha1.ReadyCondition, metav1.ConditionFalse, torporv1alpha1.AnotherWriterReason)
	if !strings.Contains(waits.Message, "found 2") {
		t.Errorf("expected the condition to count Korifi's Pods, found %q", waits.Message)
	}
	if n := countPods(korifiv1alpha1.ProcessGUIDLabel); n != 0 {
		t.Errorf("expected no Pod of Torpor's next to Korifi's, found %d", n)
	}

	t.Log("Korifi's StatefulSet is deleted.")
	testenv.ExpectNoError(t, env.Client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
	if own, theirs := countPods(korifiv1alpha1.ProcessGUIDLabel), countPods(korifiv1alpha1.AppWorkloadGUIDLabel); own != 2 || theirs != 0 {
		t.Errorf("expected 2 Pods of Torpor's and none of Korifi's, found %d and %d", own, theirs)
	}
	var processes korifiv1alpha1.CFProcessList
	if err := env.Client.List(t.Context(), &processes, client.InNamespace(namespace)); err != nil || len(processes.Items) != 1 || processes.Items[0].Name != process {
		t.Errorf("expected Korifi's process and no other, found %d (%v)", len(processes.Items), err)
	}

	if out := takeOver(0); out != "" {
		t.Errorf("expected a second run to have nothing to do, found %s", out)
	}
	role := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "torpor-dora"}}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role); err != nil || role.RoleRef.Name != "torpor-space-developer" || role.Subjects[0].Name != "dora" {
		t.Errorf("expected dora to be a developer here, found %v (%v)", role, err)
	}

	t.Log("The app has its service, and the task that Korifi started has ended.")
	pods := &corev1.PodList{}
	testenv.ExpectNoError(t, env.Client.List(t.Context(), pods, client.InNamespace(namespace), client.HasLabels{korifiv1alpha1.ProcessGUIDLabel}))
	for _, pod := range pods.Items {
		if !slices.ContainsFunc(pod.Spec.Containers[0].Env, func(v corev1.EnvVar) bool { return v.Name == "VCAP_SERVICES" }) {
			t.Errorf("expected VCAP_SERVICES in %s, found %v", pod.Name, pod.Spec.Containers[0].Env)
		}
	}
	task := &korifiv1alpha1.CFTask{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "migrate"}}
	env.WaitForCondition(t, task, korifiv1alpha1.TaskFailedCondition, metav1.ConditionTrue, korifiv1alpha1.TaskJobLostReason)

	t.Log("The app is stopped, started and deleted.")
	for _, state := range []korifiv1alpha1.AppState{korifiv1alpha1.StoppedState, korifiv1alpha1.StartedState} {
		testenv.ExpectPatched(t, env, app, func(app *korifiv1alpha1.CFApp) { app.Spec.DesiredState = state })
		reason := map[korifiv1alpha1.AppState]string{korifiv1alpha1.StoppedState: korifiv1alpha1.StoppedReason, korifiv1alpha1.StartedState: korifiv1alpha1.RunningReason}[state]
		env.WaitFor(t, "the app is "+reason, app, func() error {
			return checkObserved(app, app.Status.Conditions, korifiv1alpha1.ReadyCondition, reason)
		})
	}
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), app))
	env.WaitForDeletion(t, app)
}
