// SPDX-License-Identifier: Apache-2.0

package certrotation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configuration is a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
type configuration struct {
	kind, name string
	// isForApps is true if the webhooks admit apps. isOptional is true if the object need not exist.
	isForApps, isOptional bool
	obj                   client.Object
	// clients points to the clientConfig of each webhook in obj.
	clients []*admissionregistrationv1.WebhookClientConfig
}

func (r *Rotator) listConfigurations() []configuration {
	all := []configuration{
		{kind: "MutatingWebhookConfiguration", name: configurationName, isForApps: true, isOptional: !r.ServesApps, obj: &admissionregistrationv1.MutatingWebhookConfiguration{}},
		{kind: "ValidatingWebhookConfiguration", name: configurationName, isForApps: true, isOptional: !r.ServesApps, obj: &admissionregistrationv1.ValidatingWebhookConfiguration{}},
	}
	for _, name := range r.OptionalConfigurations {
		all = append(all, configuration{kind: "MutatingWebhookConfiguration", name: name, isOptional: true, obj: &admissionregistrationv1.MutatingWebhookConfiguration{}})
	}
	return all
}

// readConfigurations returns the webhook configurations that exist, and those that are missing.
func (r *Rotator) readConfigurations(ctx context.Context) (found, missing []configuration, err error) {
	for _, c := range r.listConfigurations() {
		err := r.Reader.Get(ctx, client.ObjectKey{Name: c.name}, c.obj)
		// The RBAC roles of an earlier version of Torpor do not permit access to optional configurations.
		if k8serrors.IsNotFound(err) || c.isOptional && k8serrors.IsForbidden(err) {
			missing = append(missing, c)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the %s %s: %w", c.kind, c.name, err)
		}
		c.clients = clientConfigs(c.obj)
		found = append(found, c)
	}
	return found, missing, nil
}

func clientConfigs(obj client.Object) (all []*admissionregistrationv1.WebhookClientConfig) {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	}
	return all
}

// isOwn reports whether a webhook's clientConfig points to this installation. An installation in another namespace has
// another certificate, so its CA bundle must not be overwritten.
func (r *Rotator) isOwn(c *admissionregistrationv1.WebhookClientConfig) bool {
	if c.Service != nil {
		return c.Service.Namespace == r.Namespace && c.Service.Name == r.Service
	}
	return slices.Contains(r.Hosts, targetHost(c))
}

// targetHost returns the host name that the API server expects in the certificate, or "".
func targetHost(c *admissionregistrationv1.WebhookClientConfig) string {
	if c.Service != nil {
		return c.Service.Name + "." + c.Service.Namespace + ".svc"
	}
	if c.URL == nil {
		return ""
	}
	address, err := url.Parse(*c.URL)
	if err != nil {
		return ""
	}
	return address.Hostname()
}

// injectBundles sets trusted as the CA bundle of each webhook that points to this installation.
func (r *Rotator) injectBundles(ctx context.Context, trusted []byte) error {
	configurations, _, err := r.readConfigurations(ctx)
	if err != nil {
		return err
	}
	for _, c := range configurations {
		before, _ := c.obj.DeepCopyObject().(client.Object)
		changed := false
		for _, config := range c.clients {
			if r.isOwn(config) && !bytes.Equal(config.CABundle, trusted) {
				config.CABundle, changed = trusted, true
			}
		}
		if !changed {
			continue
		}
		if err := r.Client.Patch(ctx, c.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("write the CA bundle of the %s %s: %w", c.kind, c.name, err)
		}
	}
	return nil
}

// findMistrust returns the reason why the API server would not call this replica or would reject its certificate, or
// nil. err is set if the check itself failed.
func (r *Rotator) findMistrust(ctx context.Context, cert *tls.Certificate) (mistrust, err error) {
	served := false
	if r.ServesApps {
		if served, err = r.isKindServed(ctx); err != nil {
			return nil, err
		}
	}
	configurations, missing, err := r.readConfigurations(ctx)
	if err != nil {
		return nil, err
	}
	var found []error
	for _, c := range missing {
		if served && c.isForApps {
			found = append(found, fmt.Errorf("expected the %s %s, found none: apply config/webhook", c.kind, c.name))
		}
	}
	for _, c := range configurations {
		if !served && c.isForApps {
			continue
		}
		for _, config := range c.clients {
			found = append(found, r.judge(c, config, cert))
		}
	}
	return errors.Join(found...), nil
}

func (r *Rotator) judge(of configuration, config *admissionregistrationv1.WebhookClientConfig, cert *tls.Certificate) error {
	if !r.isOwn(config) {
		return fmt.Errorf("expected the %s %s to point to the Service %s/%s of this installation, found %s: run only one installation of Torpor, or set the configuration to this Service",
			of.kind, of.name, r.Namespace, r.Service, cmp.Or(targetHost(config), "no address"))
	}
	if len(config.CABundle) == 0 && r.Files != nil {
		return nil // Without a caBundle, the API server trusts its system's certificate authorities, which this program cannot check.
	}
	options := x509.VerifyOptions{DNSName: targetHost(config), Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: r.Clock.Now()}
	options.Roots.AppendCertsFromPEM(config.CABundle)
	for _, raw := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	if _, err := cert.Leaf.Verify(options); err != nil {
		return fmt.Errorf("expected the %s %s to trust the certificate of this replica, found %w: another controller writes the caBundle, or the caBundle is not written yet", of.kind, of.name, err)
	}
	return nil
}

// isKindServed reports whether the API server serves r.Kind. It sends a list request, because a RESTMapper may be
// outdated.
func (r *Rotator) isKindServed(ctx context.Context) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.Kind.GroupVersion().WithKind(r.Kind.Kind + "List"))
	err := r.Reader.List(ctx, list, client.Limit(1))
	if k8serrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("check whether %s is served: %w", r.Kind.Kind, err)
	}
	return true, nil
}
