// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience bounds every wait for one thing; nothing should take a tenth of it.
const Patience = 2 * time.Minute

// Cluster changes the API server from outside. It has a connection of its own, so that what is measured has one too.
type Cluster struct {
	client    client.WithWatch
	discovery *discovery.DiscoveryClient
}

// NewCluster takes the administrator's configuration.
func NewCluster(cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, -1
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // A dialer of its own means a connection of its own.
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make the scheme of CRDs: %w", err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the client that installs CRDs: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &Cluster{client: c, discovery: d}, nil
}

// Kind is number i of the bench's kinds; ten share a group.
func Kind(i int) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: fmt.Sprintf("g%d.bench.example.com", i/10), Version: "v1", Kind: fmt.Sprintf("Widget%d", i)}
}

func plural(kind schema.GroupVersionKind) string { return strings.ToLower(kind.Kind) + "s" }

// CRDName is the name of the kind's CRD.
func CRDName(kind schema.GroupVersionKind) string { return plural(kind) + "." + kind.Group }

// Object is an empty object of the kind.
func Object(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	if name != "" {
		obj.SetNamespace(metav1.NamespaceDefault)
		obj.SetName(name)
	}
	return obj
}

func definition(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: CRDName(kind)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural(kind), Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"message": text, "colour": text}},
					},
				}},
			}},
		},
	}
}

// Install creates the CRD of the kind.
func (c *Cluster) Install(ctx context.Context, kind schema.GroupVersionKind) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := c.client.Create(ctx, definition(kind)); err != nil {
		return fmt.Errorf("install the CRD of %s: %w", kind.Kind, err)
	}
	return nil
}

// Uninstall asks for the deletion of the kind's CRD.
func (c *Cluster) Uninstall(ctx context.Context, kind schema.GroupVersionKind) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := c.client.Delete(ctx, definition(kind)); err != nil {
		return fmt.Errorf("uninstall the CRD of %s: %w", kind.Kind, err)
	}
	return nil
}

// Create makes an object of the kind, again and again while a new kind does not take it yet.
func (c *Cluster) Create(ctx context.Context, kind schema.GroupVersionKind, name string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		last = c.client.Create(ctx, Object(kind, name))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("create %s %s: %w (%w)", kind.Kind, name, last, err)
	}
	return nil
}

// Delete removes an object of the kind.
func (c *Cluster) Delete(ctx context.Context, kind schema.GroupVersionKind, name string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := c.client.Delete(ctx, Object(kind, name)); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind.Kind, name, err)
	}
	return nil
}

// AwaitServed asks discovery for the kind, after 2 ms, 4 ms, 8 ms and so on, until it is there.
func (c *Cluster) AwaitServed(ctx context.Context, kind schema.GroupVersionKind) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	backoff := wait.Backoff{Duration: 2 * time.Millisecond, Factor: 2, Steps: 20, Cap: time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		list, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
		return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind }), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is served: %w", kind.Kind, err)
	}
	return nil
}
