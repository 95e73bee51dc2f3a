// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	mutatePath   = "/mutate-example-com-v1-widget"
	validatePath = "/validate-example-com-v1-widget"
)

// widgetWebhook is a defaulter and validator as kubebuilder writes them; it reads its rules with the client it was given.
type widgetWebhook struct {
	client client.Client
	start  int32
}

func (j *widgetWebhook) Default(_ context.Context, w *Widget) error {
	w.Annotations = map[string]string{"start": strconv.Itoa(int(j.start))}
	return nil
}

func (j *widgetWebhook) ValidateCreate(ctx context.Context, w *Widget) (admission.Warnings, error) {
	var rules corev1.ConfigMap
	if err := j.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "rules"}, &rules); err != nil {
		return nil, err
	}
	if w.Spec.Message == rules.Data["forbidden"] {
		return nil, fmt.Errorf("the message is forbidden, says start %d", j.start)
	}
	return nil, nil
}

func (j *widgetWebhook) ValidateUpdate(ctx context.Context, _, w *Widget) (admission.Warnings, error) {
	return j.ValidateCreate(ctx, w)
}

func (j *widgetWebhook) ValidateDelete(context.Context, *Widget) (admission.Warnings, error) {
	return nil, nil
}

// judging sets up the webhooks of Widget with a new judge per start.
func judging() SetupFunc {
	var starts atomic.Int32
	return func(mgr manager.Manager) error {
		j := &widgetWebhook{client: mgr.GetClient(), start: starts.Add(1)}
		return ctrl.NewWebhookManagedBy(mgr, &Widget{}).WithDefaulter(j).WithValidator(j).Complete()
	}
}

// webhookEnv is a manager that serves webhooks on loopback, with one group, and what the API server must know of it.
type webhookEnv struct {
	*apiServer
	host  string
	ca    []byte
	mgr   manager.Manager
	when  switchedCondition
	group *Group
}

func (s *apiServer) newWebhookEnv(t *testing.T, setup SetupFunc, opts ...Option) *webhookEnv {
	t.Helper()
	certs := &envtest.WebhookInstallOptions{}
	if err := certs.PrepWithoutInstalling(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := certs.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	h := &webhookEnv{
		apiServer: &apiServer{t: t, env: s.env, cfg: s.cfg, scheme: s.scheme},
		host:      net.JoinHostPort(certs.LocalServingHost, strconv.Itoa(certs.LocalServingPort)),
		ca:        certs.LocalServingCAData,
		when:      switchedCondition{says: make(chan Status)},
	}
	h.mgr = hookManager(t, s.cfg, s.scheme, webhook.Options{Host: certs.LocalServingHost, Port: certs.LocalServingPort, CertDir: certs.LocalServingCertDir})
	var err error
	if h.group, err = Setup(h.mgr, h.when, setup, append(opts, Name("widgets"))...); err != nil {
		t.Fatal(err)
	}
	h.startManager(h.mgr)
	return h
}

// hookManager logs nothing: controller-runtime still logs after its Start has returned, which a test's log does not bear.
func hookManager(t *testing.T, cfg *rest.Config, scheme *runtime.Scheme, options webhook.Options) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{SkipNameValidation: new(true)}, WebhookServer: webhook.NewServer(options),
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

func (h *webhookEnv) turn(state State, p Phase) {
	h.t.Helper()
	h.when.says <- Status{State: state}
	h.waitForPhase(h.group, p)
}

// configure makes the API server ask the manager about Widgets.
func (h *webhookEnv) configure(policy admissionregistrationv1.FailurePolicyType) {
	h.t.Helper()
	ask := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new("https://" + h.host + path), CABundle: h.ca}
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
	}}
	none, v1 := admissionregistrationv1.SideEffectClassNone, []string{"v1"}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
	_, err := controllerutil.CreateOrUpdate(h.t.Context(), h.newClient(), mutating, func() error {
		mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.example.com", ClientConfig: ask(mutatePath), Rules: rules, FailurePolicy: &policy, SideEffects: &none, AdmissionReviewVersions: v1,
		}}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
	_, err = controllerutil.CreateOrUpdate(h.t.Context(), h.newClient(), validating, func() error {
		validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.example.com", ClientConfig: ask(validatePath), Rules: rules, FailurePolicy: &policy, SideEffects: &none, AdmissionReviewVersions: v1,
		}}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// unconfigure runs when the context of the test has ended.
func (h *webhookEnv) unconfigure() {
	for _, obj := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		obj.SetName("widgets")
		if err := client.IgnoreNotFound(h.newClient().Delete(context.Background(), obj)); err != nil {
			h.t.Error(err)
		}
	}
}

// submits creates Widgets until one meets the expectation: the API server learns of a configuration a little later.
func (h *webhookEnv) submits(what, message string, ok func(w *Widget, err error) bool) {
	h.t.Helper()
	var w *Widget
	var err error
	defer func() { h.t.Logf("%s: annotations %v, error %v", what, w.Annotations, err) }()
	h.eventually(what, func(ctx context.Context) (bool, error) {
		w = &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "w-"}, Spec: WidgetSpec{Message: message}}
		err = h.newClient().Create(ctx, w)
		return ok(w, err), nil
	})
}

func admittedBy(start string) func(*Widget, error) bool {
	return func(w *Widget, err error) bool { return err == nil && w.Annotations["start"] == start }
}

func refusedWith(text string) func(*Widget, error) bool {
	return func(_ *Widget, err error) bool { return err != nil && strings.Contains(err.Error(), text) }
}

func TestAdmissionWebhooks(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	s.installCRD(newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped))
	rules := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rules"}, Data: map[string]string{"forbidden": "no"}}
	if err := s.newClient().Create(t.Context(), rules); err != nil {
		t.Fatal(err)
	}

	t.Run("the handler of the running activation answers, and the failure policy while there is none", func(t *testing.T) {
		h := s.newWebhookEnv(t, judging(), DormantAdmission(RefuseAdmission))
		defer h.unconfigure()
		h.turn(True, Running)
		h.configure(admissionregistrationv1.Fail)
		h.submits("the first start defaults", "yes", admittedBy("1"))
		h.submits("the first start refuses", "no", refusedWith("says start 1"))
		h.turn(False, Dormant)
		h.submits("the refusal tells why", "yes", refusedWith(`is dormant: its conditional group "widgets" does not run`))
		h.turn(True, Running)
		h.submits("the second start defaults", "yes", admittedBy("2"))
		h.submits("the second start refuses", "no", refusedWith("says start 2"))
		h.turn(False, Dormant)
		h.configure(admissionregistrationv1.Ignore)
		h.submits("a policy that ignores failure lets everything through", "no", admittedBy(""))
	})

	t.Run("a dormant webhook may allow, with a warning", func(t *testing.T) {
		h := s.newWebhookEnv(t, judging(), DormantAdmission(AllowAdmission))
		defer h.unconfigure()
		warnings := make(warningHandler, 100)
		h.cfg = rest.CopyConfig(h.cfg)
		h.cfg.WarningHandler = warnings
		h.turn(True, Running)
		h.configure(admissionregistrationv1.Fail)
		h.submits("the running webhook refuses", "no", refusedWith("says start 1"))
		h.turn(False, Dormant)
		h.submits("the dormant webhook admits", "no", admittedBy(""))
		if got := <-warnings; !strings.Contains(got, "is dormant") {
			t.Errorf("warning is %q, want one that says it is dormant", got)
		}
		h.turn(True, Running)
		h.submits("the running webhook refuses again", "no", refusedWith("says start 2"))
	})
}

type warningHandler chan string

func (w warningHandler) HandleWarningHeader(_ int, _, text string) { w <- text }
