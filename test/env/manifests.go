// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// readAhead is how much of a manifest is read to detect JSON.
const readAhead = 4096

// ExpectCreated creates objects. It retries, because for some seconds after a CRD was installed, the API server returns
// 503 for objects that a policy would change.
func (e *Environment) ExpectCreated(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		Eventually(t, fmt.Sprintf("%T %s is created", obj, obj.GetName()), func() error {
			err := e.Client.Create(t.Context(), obj)
			if err != nil && !k8serrors.IsServiceUnavailable(err) {
				t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
			}
			return err
		})
	}
}

// ApplyManifest creates the objects of a manifest below config, such as rbac/cf/api.yaml.
func (e *Environment) ApplyManifest(t testing.TB, path string) {
	t.Helper()
	for in := openManifest(t, path); ; {
		var u unstructured.Unstructured
		err := in.Decode(&u)
		if errors.Is(err, io.EOF) {
			return
		}
		ExpectNoError(t, err)
		e.ExpectCreated(t, &u)
	}
}

// ApplyManagerRoles grants the ServiceAccount torpor-manager of a namespace the permissions of config/rbac and of
// the named features, or of all features if none is named, and returns its user name.
func (e *Environment) ApplyManagerRoles(t testing.TB, namespace string, features ...string) (user string) {
	t.Helper()
	if len(features) == 0 {
		features = []string{"*"}
	}
	e.applyFolder(t, "rbac", namespace)
	for _, f := range features {
		e.ApplyFeatureRoles(t, namespace, f)
	}
	return "system:serviceaccount:" + namespace + ":torpor-manager"
}

// ApplyFeatureRoles grants the permissions of one more feature.
func (e *Environment) ApplyFeatureRoles(t testing.TB, namespace, feature string) {
	t.Helper()
	e.applyFolder(t, filepath.Join("features", feature), namespace)
}

// AggregateRole sets the rules of an aggregated ClusterRole to those of the roles with the selected labels, as
// kube-controller-manager would.
func (e *Environment) AggregateRole(t testing.TB, name string) {
	t.Helper()
	role, all := &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}
	ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Name: name}, role))
	if role.AggregationRule == nil {
		t.Fatalf("expected the ClusterRole %s to have an aggregationRule, found none", name)
	}
	role.Rules = nil
	for _, one := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&one)
		ExpectNoError(t, err)
		ExpectNoError(t, e.Client.List(t.Context(), all, client.MatchingLabelsSelector{Selector: selector}))
		for i := range all.Items {
			role.Rules = append(role.Rules, all.Items[i].Rules...)
		}
	}
	ExpectNoError(t, e.Client.Update(t.Context(), role))
}

// applyFolder creates the objects of a folder of config.
func (e *Environment) applyFolder(t testing.TB, folder, namespace string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(crdFolder(t)), folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected roles in %s, found none (%v)", folder, err)
	}
	for _, file := range files {
		if filepath.Base(file) != "kustomization.yaml" {
			e.applyInNamespace(t, file, namespace)
		}
	}
}

// applyInNamespace creates the objects of a file. It moves objects of torpor-system to another namespace.
func (e *Environment) applyInNamespace(t testing.TB, file, namespace string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.ReplaceAll(string(data), "namespace: torpor-system", "namespace: "+namespace)), readAhead)
	for {
		var u unstructured.Unstructured
		if err := in.Decode(&u); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		// The API server creates kube-system only after it has become ready.
		Eventually(t, u.GetName()+" is made", func() error { return client.IgnoreAlreadyExists(e.Client.Create(t.Context(), &u)) })
	}
}

// InstallWebhooks creates the webhook configurations of config/webhook, with a URL instead of the Service, and
// returns them. ca is the CA certificate in PEM; if it is empty, the manager adds its own.
func (e *Environment) InstallWebhooks(t testing.TB, url string, ca []byte) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	in := openManifest(t, filepath.Join("webhook", "manifests.yaml"))
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	ExpectNoError(t, errors.Join(in.Decode(mutating), in.Decode(validating)))
	for i := range mutating.Webhooks {
		c := &mutating.Webhooks[i].ClientConfig
		*c = admissionregistrationv1.WebhookClientConfig{URL: new(url + *c.Service.Path), CABundle: ca}
	}
	for i := range validating.Webhooks {
		c := &validating.Webhooks[i].ClientConfig
		*c = admissionregistrationv1.WebhookClientConfig{URL: new(url + *c.Service.Path), CABundle: ca}
	}
	e.ExpectCreated(t, mutating)
	e.ExpectCreated(t, validating)
	return mutating, validating
}

// InstallRecordWebhooks creates the configurations of config/record/webhook for some features, as
// InstallWebhooks does.
func (e *Environment) InstallRecordWebhooks(t testing.TB, url string, ca []byte, features ...string) {
	t.Helper()
	for _, feature := range features {
		noting := &admissionregistrationv1.MutatingWebhookConfiguration{}
		ExpectNoError(t, openManifest(t, filepath.Join("record", "webhook", feature+".yaml")).Decode(noting))
		for i := range noting.Webhooks {
			c := &noting.Webhooks[i].ClientConfig
			*c = admissionregistrationv1.WebhookClientConfig{URL: new(url + *c.Service.Path), CABundle: ca}
		}
		e.ExpectCreated(t, noting)
	}
}

func openManifest(t testing.TB, path string) *yaml.YAMLOrJSONDecoder {
	t.Helper()
	file, err := os.Open(filepath.Join(filepath.Dir(crdFolder(t)), path))
	ExpectNoError(t, err)
	t.Cleanup(func() { _ = file.Close() }) // The file was only read.
	return yaml.NewYAMLOrJSONDecoder(file, readAhead)
}

// GetTable returns the table from which kubectl get prints an object.
func (e *Environment) GetTable(t testing.TB, of schema.GroupVersionResource, key types.NamespacedName) metav1.Table {
	t.Helper()
	web, err := rest.HTTPClientFor(e.Config)
	ExpectNoError(t, err)
	url := e.Config.Host + "/apis/" + of.GroupVersion().String() + "/namespaces/" + key.Namespace + "/" + of.Resource + "/" + key.Name
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	ExpectNoError(t, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := web.Do(request)
	ExpectNoError(t, err)
	t.Cleanup(func() {
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
	})
	var table metav1.Table
	ExpectNoError(t, json.NewDecoder(answer.Body).Decode(&table))
	if len(table.Rows) != 1 {
		t.Fatalf("found %d rows in %s, want one", len(table.Rows), answer.Status)
	}
	return table
}

// WithField returns a copy of an object with a field set to a value, or removed if the value is nil.
func WithField(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	u = u.DeepCopy()
	if value == nil {
		unstructured.RemoveNestedField(u.Object, path...)
		return u
	}
	parent := u.Object
	for _, name := range path[:len(path)-1] {
		next, ok := parent[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			parent[name] = next
		}
		parent = next
	}
	parent[path[len(path)-1]] = runtime.DeepCopyJSONValue(value)
	return u
}

// BuildClusterDeployment returns an installed cluster on the simulated cloud, with its name as the infraID of its
// machines and with the named Secrets.
func BuildClusterDeployment(name types.NamespacedName, cloudSecret, kubeconfigSecret string) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{hivev1.VersionLabel: "4.16.3"},
	}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Installed = name.Name, "local.test", true
	cd.Spec.Platform.AWS = &hivev1.AWSPlatform{Region: Region}
	cd.Spec.Platform.AWS.CredentialsSecretRef.Name = cloudSecret
	cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: name.Name, InfraID: name.Name}
	cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = kubeconfigSecret
	return cd
}

// BuildMySQLCluster returns a MySQLCluster with only the required fields.
func BuildMySQLCluster(t testing.TB, name types.NamespacedName, replicas int) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := DecodeObject(t, fmt.Sprintf(`{"spec": {
	"replicas": %d, "podTemplate": {"spec": {"containers": [{"name": "mysqld", "image": "mysql:1"}]}},
	"volumeClaimTemplates": [{"metadata": {"name": "mysql-data"},
		"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}`, replicas), &mocov1beta2.MySQLCluster{})
	cluster.Namespace, cluster.Name = name.Namespace, name.Name
	return cluster
}

// BuildCFApp returns a stopped app without a droplet.
func BuildCFApp(name types.NamespacedName) *korifiv1alpha1.CFApp {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	app.Spec.DisplayName, app.Spec.DesiredState, app.Spec.Lifecycle.Type = name.Name, korifiv1alpha1.StoppedState, korifiv1alpha1.DockerLifecycle
	return app
}

// WaitForAppAdmission waits until the webhooks answer. It creates an app in dry runs until admission sets the
// revision.
func (e *Environment) WaitForAppAdmission(t testing.TB, namespace, revision string) {
	t.Helper()
	Eventually(t, "admission sets revision "+revision, func() error {
		app := BuildCFApp(types.NamespacedName{Namespace: namespace, Name: "probe"})
		if err := e.Client.Create(t.Context(), app, client.DryRunAll); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if found := app.Annotations[korifiv1alpha1.RevisionAnnotation]; found != revision {
			return fmt.Errorf("expected revision %q, found %q", revision, found)
		}
		return nil
	})
}
