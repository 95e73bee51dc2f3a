// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxDiscoveryBytes is several times the size of the largest group version in Kubernetes and OpenShift. Short
	// elements such as {} need the most memory per byte when they are decoded.
	maxDiscoveryBytes = 256 << 10
	// defaultNamespace is the namespace of objects without a namespace, as in kubectl.
	defaultNamespace = "default"
	maxReasonBytes   = 400
)

// ErrUnknownKind means that a cluster does not serve the kind.
var ErrUnknownKind = errors.New("the cluster does not serve this kind; install its CustomResourceDefinition first")

// ObjectName identifies an object of a cluster.
type ObjectName struct {
	schema.GroupVersionKind
	types.NamespacedName
}

// servedResource describes how a cluster serves a kind.
type servedResource struct {
	name         string
	isNamespaced bool
}

// ObjectWriter writes objects of a cluster. It discovers the kinds of each group version once.
type ObjectWriter struct {
	client *ClusterClient
	// owner is the field manager.
	owner  string
	served map[schema.GroupVersion]map[string]servedResource
}

// NewObjectWriter returns a writer with owner as its field manager.
func (c *ClusterClient) NewObjectWriter(owner string) *ObjectWriter {
	return &ObjectWriter{client: c, owner: owner, served: map[schema.GroupVersion]map[string]servedResource{}}
}

// Apply applies the manifest by server-side apply. It forces ownership of conflicting fields.
func (w *ObjectWriter) Apply(ctx context.Context, name ObjectName, manifest []byte) error {
	return w.patch(ctx, name, types.ApplyPatchType, manifest, true)
}

// Patch changes an existing object.
func (w *ObjectWriter) Patch(ctx context.Context, name ObjectName, kind types.PatchType, patch []byte) error {
	return w.patch(ctx, name, kind, patch, false)
}

func (w *ObjectWriter) patch(ctx context.Context, name ObjectName, kind types.PatchType, body []byte, force bool) error {
	address, err := w.addressOf(ctx, name)
	if err != nil {
		return err
	}
	request := w.client.rest.Patch(kind).AbsPath(address...).Param("fieldManager", w.owner).Body(body)
	if force {
		request = request.Param("force", "true")
	}
	return w.client.discardObject(ctx, request)
}

// Delete deletes an object and its dependents. A missing object or an unknown kind is not an error.
func (w *ObjectWriter) Delete(ctx context.Context, name ObjectName) error {
	address, err := w.addressOf(ctx, name)
	if errors.Is(err, ErrUnknownKind) {
		return nil
	}
	if err != nil {
		return err
	}
	request := w.client.rest.Delete().AbsPath(address...).Param("propagationPolicy", string(metav1.DeletePropagationBackground))
	if err := w.client.discardObject(ctx, request); !k8serrors.IsNotFound(err) {
		return err
	}
	return nil
}

// addressOf returns an object's path.
func (w *ObjectWriter) addressOf(ctx context.Context, name ObjectName) ([]string, error) {
	version := name.GroupVersion()
	kinds, isKnown := w.served[version]
	if !isKnown {
		var err error
		if kinds, err = w.client.readServedResources(ctx, version); err != nil {
			return nil, err
		}
	}
	resource, isServed := kinds[name.Kind]
	if !isServed {
		return nil, ErrUnknownKind // The kind may be served soon, so this result is not cached.
	}
	w.served[version] = kinds
	address := groupPath(version)
	if resource.isNamespaced {
		namespace := name.Namespace
		if namespace == "" {
			namespace = defaultNamespace
		}
		address = append(address, "namespaces", namespace)
	}
	return append(address, resource.name, name.Name), nil
}

func groupPath(version schema.GroupVersion) []string {
	if version.Group == "" {
		return []string{"/api", version.Version}
	}
	return []string{"/apis", version.Group, version.Version}
}

// readServedResources returns the resources of a group version, by kind.
func (c *ClusterClient) readServedResources(ctx context.Context, version schema.GroupVersion) (map[string]servedResource, error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := c.rest.Get().AbsPath(groupPath(version)...).MaxRetries(0).Stream(ctx)
	if k8serrors.IsNotFound(err) {
		return nil, ErrUnknownKind
	}
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", version, err)
	}
	defer func() { _ = body.Close() }()
	var list struct {
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxDiscoveryBytes)).Decode(&list); err != nil {
		return nil, malformedUnlessBroken(err)
	}
	kinds := map[string]servedResource{}
	for _, r := range list.Resources {
		if strings.Contains(r.Name, "/") || r.Name == "" || len(content.IsPathSegmentName(r.Name)) > 0 {
			continue // The name is that of a subresource, or is not valid in a path.
		}
		kinds[r.Kind] = servedResource{name: r.Name, isNamespaced: r.Namespaced}
	}
	return kinds, nil
}

// ListPage calls visit with each object of a kind in a namespace, in one request. A list of more than one page is an
// error. If the kind is not served, the error is ErrUnknownKind.
func (c *ClusterClient) ListPage(ctx context.Context, resource schema.GroupVersionResource, namespace string, visit func(item []byte) error) error {
	path := append(groupPath(resource.GroupVersion()), "namespaces", namespace, resource.Resource)
	items := 0
	next, err := c.readPage(ctx, listQuery{path: strings.Join(path, "/")}, "", func(item []byte) error {
		if items++; items > pageSize {
			return errTooManyItems
		}
		return visit(item)
	})
	switch {
	case k8serrors.IsNotFound(err):
		return ErrUnknownKind
	case err != nil:
		return err
	case next != "":
		return errTooManyItems
	default:
		return nil
	}
}

// discardObject sends a request and discards the object in the response.
func (c *ClusterClient) discardObject(ctx context.Context, request *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := request.MaxRetries(0).Stream(ctx)
	if err != nil {
		return fmt.Errorf("send the object: %w", err)
	}
	defer func() { _ = body.Close() }()
	n, err := io.Copy(io.Discard, io.LimitReader(body, maxItemBytes+1))
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if n > maxItemBytes {
		return httpguard.ErrAnswerTooLarge
	}
	return nil
}

// DescribeRefusal returns the reason why a cluster refused an object. The second result is false if the cluster did not
// respond at all, or refuses every request. Unless mayQuote is true, the server's own message is omitted, because it
// repeats parts of the request.
func DescribeRefusal(err error, mayQuote bool) (string, bool) {
	if errors.Is(err, ErrUnknownKind) {
		return ErrUnknownKind.Error(), true
	}
	refusal, ok := errors.AsType[*k8serrors.StatusError](err)
	if !ok || k8serrors.IsUnauthorized(err) || isRedirect(refusal.Status().Code) {
		return "", false
	}
	status := refusal.Status()
	text := fmt.Sprintf("the server responds with %d %s", status.Code, printable(string(status.Reason)))
	if mayQuote && status.Message != "" {
		return text + ": " + printable(status.Message), true
	}
	return text, true
}

// printable returns the beginning of a server's text, as one line.
func printable(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxReasonBytes)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
