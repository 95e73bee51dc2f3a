// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// lookTimeout bounds one look at the API server.
const lookTimeout = 10 * time.Second

// prober asks the API server, one small request at a time and never with client-go's own retries.
type prober struct {
	client rest.Interface
	uid    func(crd string) string
}

func newProber(cfg *rest.Config, hc *http.Client, uid func(crd string) string) (*prober, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // The loop's pauses are the limit.
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	cfg.AcceptContentTypes, cfg.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("build the discovery client: %w", err)
	}
	return &prober{client: client, uid: uid}, nil
}

func (p *prober) look(ctx context.Context, gvk schema.GroupVersionKind, known string) sighting {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	resource, s := p.discover(ctx, gvk)
	if s.kind != present || s.identity() == known || !slices.Contains(resource.Verbs, "watch") {
		return s
	}
	return p.warm(ctx, gvk, s)
}

// discover reads the one group version, which is the only proof that a kind is served.
func (p *prober) discover(ctx context.Context, gvk schema.GroupVersionKind) (metav1.APIResource, sighting) {
	raw, err := p.client.Get().AbsPath(root(gvk.GroupVersion())).MaxRetries(0).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return metav1.APIResource{}, sighting{kind: missing}
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return metav1.APIResource{}, sighting{err: fmt.Errorf("discover %s: %w", gvk.GroupVersion(), err)}
	}
	for _, r := range list.APIResources {
		if r.Kind != gvk.Kind || strings.Contains(r.Name, "/") {
			continue
		}
		s := sighting{kind: present, version: gvk.Version, scope: "Cluster", plural: r.Name, uid: p.uid(r.Name + "." + gvk.Group)}
		if r.Namespaced {
			s.scope = "Namespaced"
		}
		return r, s
	}
	return metav1.APIResource{}, sighting{kind: missing}
}

// warm opens a watch and drops it: right after a CRD is installed its storage answers 429 for a while, which an
// informer would take for a reason to pause for a second. Whether the watch is allowed is not asked here.
func (p *prober) warm(ctx context.Context, gvk schema.GroupVersionKind, s sighting) sighting {
	body, err := p.client.Get().AbsPath(root(gvk.GroupVersion()), s.plural).Param("watch", "true").MaxRetries(0).Stream(ctx)
	switch {
	case err == nil:
		_ = body.Close() // Nothing is written, so nothing can be lost.
	case apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err):
		s.kind = warming
	case !apierrors.IsForbidden(err):
		return sighting{err: fmt.Errorf("watch %s: %w", s.plural, err)}
	}
	return s
}

func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return path.Join("/api", gv.Version)
	}
	return path.Join("/apis", gv.Group, gv.Version)
}
