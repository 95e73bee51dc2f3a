// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// restServer queries the API server and runs the watches. Each query is one small request without client-go's own
// retries.
type restServer struct {
	client   rest.Interface
	metadata metadata.Interface
	http     *http.Client
	base     *url.URL
}

func newRESTServer(cfg *rest.Config, hc *http.Client) (*restServer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // The pauses of look.go limit the rate.
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), hc)
	if err != nil {
		return nil, fmt.Errorf("build the metadata client: %w", err)
	}
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	cfg.AcceptContentTypes, cfg.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("build the discovery client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return &restServer{client: client, metadata: meta, http: hc, base: base}, nil
}

// discoverKinds reads the discovery document of one group version. A kind is served only if this document lists it.
func (s *restServer) discoverKinds(ctx context.Context, gv schema.GroupVersion) (map[string]lookResult, error) {
	raw, err := s.client.Get().AbsPath(apiPath(gv)).MaxRetries(0).Do(ctx).Raw()
	// Not found is a result, not a failure: the server does not serve this group version.
	if k8serrors.IsNotFound(err) {
		return nil, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", gv, err)
	}
	kinds := map[string]lookResult{}
	for _, r := range list.APIResources {
		// A name with a slash is a subresource, which may have the same kind as its parent.
		if _, twice := kinds[r.Kind]; twice || strings.Contains(r.Name, "/") {
			continue
		}
		found := lookResult{outcome: outcomePresent, version: gv.Version, scope: "Cluster", plural: r.Name, watchable: slices.Contains(r.Verbs, "watch")}
		if r.Namespaced {
			found.scope = "Namespaced"
		}
		kinds[r.Kind] = found
	}
	return kinds, nil
}

// discoveryVersion reads the ETag of the list of the kinds at /apis. client-go's clients do not return headers, and
// treat the response Not Modified as an error.
func (s *restServer) discoveryVersion(ctx context.Context, last string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.JoinPath("apis").String(), nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	if last != "" {
		request.Header.Set("If-None-Match", last)
	}
	answer, err := s.http.Do(request)
	if err != nil {
		return "", err
	}
	_ = answer.Body.Close() // Only the header is needed.
	switch answer.StatusCode {
	case http.StatusNotModified:
		return last, nil
	case http.StatusOK:
		return answer.Header.Get("ETag"), nil
	}
	return "", fmt.Errorf("expected the list of kinds, found %s", answer.Status)
}

// probeWatch opens a watch and closes it. Right after a CRD is installed, its storage returns 429 for a while, and an
// informer would pause for a second after this response. The probe does not check whether the watch is allowed. It
// selects no object, because existing objects would be sent first.
func (s *restServer) probeWatch(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	body, err := s.client.Get().AbsPath(apiPath(gvr.GroupVersion()), gvr.Resource).Param("watch", "true").Param("fieldSelector", "metadata.name=-").MaxRetries(0).Stream(ctx)
	switch {
	case err == nil:
		_ = body.Close() // The response was only read, so an error of Close loses nothing.
		return true, nil
	case k8serrors.IsForbidden(err) || k8serrors.IsBadRequest(err):
		// The storage responds. A forbidden watch will be reported by the informer, and a bad request means that the
		// server does not support the field selector.
		return true, nil
	case k8serrors.IsTooManyRequests(err) || k8serrors.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
}

func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return path.Join("/api", gv.Version)
	}
	return path.Join("/apis", gv.Group, gv.Version)
}
