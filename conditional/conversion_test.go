// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconversion "sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// oldWidget is the v1beta1 version of Widget, in which the message is called text.
type oldWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              oldWidgetSpec `json:"spec"`
}

type oldWidgetSpec struct {
	Text string `json:"text,omitempty"`
}

func (w *oldWidget) DeepCopyObject() runtime.Object {
	out := &oldWidget{TypeMeta: w.TypeMeta, Spec: w.Spec}
	w.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (w *oldWidget) ConvertTo(hub ctrlconversion.Hub) error {
	to, ok := hub.(*Widget)
	if !ok {
		return fmt.Errorf("hub is a %T", hub)
	}
	w.DeepCopyInto(&to.ObjectMeta)
	to.Spec.Message = w.Spec.Text
	return nil
}

func (w *oldWidget) ConvertFrom(hub ctrlconversion.Hub) error {
	from, ok := hub.(*Widget)
	if !ok {
		return fmt.Errorf("hub is a %T", hub)
	}
	from.DeepCopyInto(&w.ObjectMeta)
	w.Spec.Text = from.Spec.Message
	return nil
}

func addOldWidgets(scheme *runtime.Scheme) {
	old := widgetKind().GroupVersion()
	old.Version = "v1beta1"
	scheme.AddKnownTypeWithName(old.WithKind("Widget"), &oldWidget{})
	metav1.AddToGroupVersion(scheme, old)
}

// twoVersions returns a CRD that serves v1 and v1beta1, with a conversion webhook at the URL. v1beta1 is the stored
// version if old is true.
func twoVersions(url string, ca []byte) *apiextensionsv1.CustomResourceDefinition {
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	old := *def.Spec.Versions[0].DeepCopy()
	old.Name, old.Storage = "v1beta1", false
	def.Spec.Versions = append(def.Spec.Versions, old)
	def.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	return def
}

// TestVersionSwitchWhileTheConversionIsDown stores an object in v1beta1, and then serves and stores v1, while the
// conversion webhook is down at first.
func TestVersionSwitchWhileTheConversionIsDown(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	addOldWidgets(s.scheme)
	var works atomic.Bool
	convert := conversion.NewWebhookHandler(s.scheme, conversion.NewRegistry())
	converter := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			http.Error(w, "the conversion is down", http.StatusInternalServerError)
			return
		}
		convert.ServeHTTP(w, r)
	}))
	defer converter.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: converter.Certificate().Raw})

	after := twoVersions(converter.URL, ca)
	before := after.DeepCopy()
	before.Spec.Conversion = nil
	before.Spec.Versions = before.Spec.Versions[1:]
	before.Spec.Versions[0].Storage = true
	s.installCRD(before)
	s.createSoon(&oldWidget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}, Spec: oldWidgetSpec{Text: "hello"}})

	mgr := s.newManagerFor(s.cfg, func(o *ctrl.Options) { o.Logger, o.Controller.CacheSyncTimeout = logr.Discard(), time.Second })
	asked, forced := make(chan string, 100), make(chan string, 100)
	served := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), asked))
	when := switchedCondition{says: make(chan Status)}
	backOff := wait.Backoff{Duration: 50 * time.Millisecond}
	blind := mustSetUp(t, mgr, when, watching(widgetKind(), forced), StartBackoff(backOff))
	s.startManager(mgr)
	s.eventually("the absence is known", func(context.Context) (bool, error) { return served.Status().Condition.Reason != "", nil })
	s.updateCRD(after, func(now *apiextensionsv1.CustomResourceDefinition) { now.Spec = *after.Spec.DeepCopy() })
	s.waitForCondition(served, False, "StorageInitializing")
	when.says <- Status{State: True} // This group starts even though its kind cannot be listed.
	s.waitForPhase(blind, Failed)
	if got := blind.Status().Error; !strings.Contains(got, "sync") {
		t.Errorf("group failed with %q, want to read that its kind does not sync", got)
	}
	works.Store(true)
	s.expectReconcile(asked, "old")
	s.waitForPhase(served, Running)
	s.expectReconcile(forced, "old")
	s.waitForPhase(blind, Running)
}
