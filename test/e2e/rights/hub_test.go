// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newTrustHub)
)

// TestMain sets a logger for controller-runtime, without which its clients log warnings.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

const (
	// system is the namespace of Torpor, and org that of an org with two spaces.
	system, org = "torpor-system", "org"
	team        = "team"
	other       = "other"
	space       = "space"
)

// trustHub is an API server with all roles and policies of config, and the manager's program with only the rights of
// its own account. Each user has one role.
type trustHub struct {
	*testenv.Environment
	// page and api are the addresses of the page and of the CF API, and http is the client of the latter.
	page, api string
	http      *http.Client
}

func newTrustHub(t testing.TB) *trustHub {
	t.Helper()
	binary := testenv.TorporPath(t)
	h := &trustHub{Environment: testenv.Start(t), page: testenv.FreeAddress(t), api: testenv.FreeAddress(t)}
	for _, name := range []string{system, team, other} {
		h.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	h.ApplyManagerRoles(t, system)
	for _, manifest := range []string{
		"rbac/cf/api.yaml", "rbac/cf/roles.yaml", "rbac/cf/role_binding_policy.yaml", "page/roles.yaml", "page/operator_policy.yaml", "kpack/role_kpack.yaml",
		"record/hibernation.yaml", "record/mysql.yaml", "record/slumber.yaml", "record/workloads.yaml",
	} {
		h.ApplyManifest(t, manifest)
	}
	for _, name := range []string{"torpor-switch-viewer", "torpor-switch-operator"} {
		h.AggregateRole(t, name)
	}
	h.startManager(t, binary)
	h.startAPI(t, binary)
	h.createObjects(t)
	h.bindUsers(t)
	return h
}

// startManager starts the manager with the token of its own account.
func (h *trustHub) startManager(t testing.TB, binary string) {
	t.Helper()
	address := testenv.FreeAddress(t)
	h.InstallWebhooks(t, "https://"+address, nil)
	testenv.StartProcess(t, binary, []string{
		"manager", "--kubeconfig", h.writeKubeconfig(t, system, "torpor-manager"), "--namespace", system,
		"--metrics-address", "0", "--probe-address", "0", "--webhook-address", address, "--page-address", h.page,
	}, nil)
	h.WaitForAppAdmission(t, system, korifiv1alpha1.FirstRevision)
}

// startAPI starts the CF API with the token of its own account.
func (h *trustHub) startAPI(t testing.TB, binary string) {
	t.Helper()
	folder := t.TempDir()
	testenv.StartProcess(t, binary, []string{
		"cf-api", "--kubeconfig", h.writeKubeconfig(t, system, "torpor-cf-api"), "--address", h.api, "--tls-folder", folder, "--metrics-address", "0",
	}, nil)
	testenv.Eventually(t, "the CF API has a certificate", func() error {
		ca, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		h.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
		return err
	})
	t.Cleanup(h.http.CloseIdleConnections)
}

func (h *trustHub) writeKubeconfig(t testing.TB, namespace, account string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["hub"] = &clientcmdapi.Cluster{Server: h.Config.Host, CertificateAuthorityData: h.Config.CAData, CertificateAuthority: h.Config.CAFile}
	c.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: h.createToken(t, namespace, account)}
	c.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: account}
	c.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*c, file))
	return file
}

func (h *trustHub) createToken(t testing.TB, namespace, account string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	testenv.ExpectNoError(t, h.Client.SubResource("token").Create(t.Context(), of, request))
	return request.Status.Token
}

// createObjects creates an object of each kind that an attempt uses.
func (h *trustHub) createObjects(t testing.TB) {
	t.Helper()
	for _, name := range []string{team, other} {
		cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: name, Name: "cluster"}, "missing", "missing")
		h.ExpectCreated(t, cd, testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: name, Name: "db"}, 1),
			testenv.BuildCFApp(types.NamespacedName{Namespace: name, Name: "app"}))
		h.ExpectCreated(t, decode(t, deploymentManifest(name, "web")),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "key"}, Data: map[string][]byte{"key": []byte("canary")}})
	}
	h.ExpectCreated(t,
		decode(t, "{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFDomain, metadata: {namespace: torpor-system, name: apps}, spec: {name: apps.example.com}}"),
		decode(t, "{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFOrg, metadata: {namespace: torpor-system, name: org}, spec: {displayName: org}}"))
	h.awaitNamespace(t, org)
	for _, name := range []string{space, "neighbour"} {
		h.ExpectCreated(t, decode(t, fmt.Sprintf("{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFSpace, metadata: {namespace: org, name: %s}, spec: {displayName: %s}}", name, name)))
		h.awaitNamespace(t, name)
	}
	h.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "key"}})
}

func (h *trustHub) awaitNamespace(t testing.TB, name string) {
	t.Helper()
	testenv.Eventually(t, "the manager creates the namespace "+name, func() error {
		return h.Client.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{})
	})
}

func deploymentManifest(namespace, name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %s, name: %s, labels: {app: %s}}, spec: {replicas: 2,
selector: {matchLabels: {app: %s}}, template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`, namespace, name, name, name, name)
}

// The users, each with one role. A name in the tables is a role of config in backquotes, or describes rights that an
// administrator grants.
const (
	viewer        = "`torpor-switch-viewer`"
	operator      = "`torpor-switch-operator`"
	auditor       = "`torpor-space-auditor`"
	developer     = "`torpor-space-developer`"
	neighbour     = "`torpor-space-developer` of another space"
	cfAdmin       = "`torpor-cf-admin`"
	editor        = "`torpor-clusterslumber-editor`"
	slumberWriter = "writer of Slumbers"
	adapterWriter = "writer of StopAdapters and Slumbers"
	roleWriter    = "writer of ClusterRoles"
	mysqlWriter   = "writer of MySQLClusters and BackupPolicies"
	patcher       = "user who patches Deployments"
)

// bindUsers gives each user a role in one namespace or in all.
func (h *trustHub) bindUsers(t testing.TB) {
	t.Helper()
	all := []string{"get", "list", "watch", "create", "patch", "update", "delete"}
	for user, rule := range map[string]rbacv1.PolicyRule{
		slumberWriter: {APIGroups: []string{"torpor.dev"}, Resources: []string{"slumbers"}, Verbs: all},
		adapterWriter: {APIGroups: []string{"torpor.dev"}, Resources: []string{"stopadapters", "slumbers"}, Verbs: all},
		roleWriter:    {APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: all},
		mysqlWriter:   {APIGroups: []string{"moco.cybozu.com"}, Resources: []string{"mysqlclusters", "backuppolicies"}, Verbs: all},
		patcher:       {APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "patch"}},
	} {
		name := types.NamespacedName{Name: fmt.Sprintf("user-%x", user)}
		h.ExpectCreated(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name.Name}, Rules: []rbacv1.PolicyRule{rule}})
		namespace := team
		if user == adapterWriter || user == roleWriter {
			namespace = ""
		}
		h.bind(t, namespace, user, name.Name)
	}
	h.bind(t, team, viewer, "torpor-switch-viewer")
	h.bind(t, team, operator, "torpor-switch-operator")
	h.bind(t, space, auditor, "torpor-space-auditor")
	h.bind(t, space, developer, "torpor-space-developer")
	h.bind(t, "neighbour", neighbour, "torpor-space-developer")
	h.bind(t, "", cfAdmin, "torpor-cf-admin")
	h.bind(t, "", editor, "torpor-clusterslumber-editor")
	h.AwaitRight(t, authorizationv1.ResourceAttributes{Verb: "create", Group: "torpor.dev", Resource: "clusterslumbers"}, editor)
}

// bind binds a ClusterRole in a namespace, or in all namespaces if the namespace is empty.
func (h *trustHub) bind(t testing.TB, namespace, user, role string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("user-%x", user)}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	if namespace == "" {
		h.ExpectCreated(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		return
	}
	h.ExpectCreated(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

func (h *trustHub) clientOf(t testing.TB, user string) client.Client {
	t.Helper()
	c, err := client.New(h.ImpersonateUser(user), client.Options{Scheme: h.Client.Scheme(), Mapper: h.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	return c
}

// decode reads an object of any kind.
func decode(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte(manifest), &u.Object))
	return u
}
