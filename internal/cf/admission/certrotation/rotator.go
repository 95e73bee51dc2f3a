// SPDX-License-Identifier: Apache-2.0

// Package certrotation gives the admission webhook a certificate and makes the API server trust it. One authority for all
// replicas is kept in a Secret; each replica signs its own certificate with it and keeps that in memory only.
package certrotation

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// secretName is the Secret with the authority; configurationName is that of config/webhook.
	secretName        = "torpor-webhook"
	configurationName = "torpor"
	bundleKey         = "ca.crt"

	interval    = 10 * time.Second
	soon        = time.Second
	callTimeout = 10 * time.Second
)

var errNoCertificate = errors.New("expected a serving certificate, found none yet: it is made when the API server answers")

// Rotator keeps the certificate of one replica valid and trusted.
type Rotator struct {
	// Reader reads past any cache, and Client writes.
	Reader client.Reader
	Client client.Client
	// Namespace of the Secret; Hosts are the names and addresses under which the API server asks.
	Namespace string
	Hosts     []string
	// Clock tells the time and ticks.
	Clock clock.Clock

	current atomic.Pointer[tls.Certificate]
	// issuer is what the current certificate was signed by.
	issuer atomic.Pointer[[]byte]
}

// GetCertificate is for the configuration of a TLS server.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := r.current.Load(); cert != nil {
		return cert, nil
	}
	return nil, errNoCertificate
}

// NeedLeaderElection is false: every replica answers.
func (*Rotator) NeedLeaderElection() bool { return false }

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=get;patch

// Start keeps the certificate until ctx ends. What goes wrong is tried again; the last certificate serves on.
func (r *Rotator) Start(ctx context.Context) error {
	for {
		wait := interval
		if err := r.rotate(ctx); err != nil {
			if !k8serrors.IsConflict(err) && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "The webhook's certificate could not be looked after; it is tried again")
			}
			wait = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(wait):
		}
	}
}

// rotate is one look at everything. The API server trusts a new authority before anything is signed with it.
func (r *Rotator) rotate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ca, trusted, err := r.loadOrCreateAuthority(ctx)
	if err != nil {
		return err
	}
	if err := r.injectBundles(ctx, trusted); err != nil {
		return err
	}
	now, issuer := r.Clock.Now(), r.issuer.Load()
	if cert := r.current.Load(); cert != nil && !needsRenewal(cert.Leaf, now) && issuer != nil && bytes.Equal(*issuer, ca.cert.Raw) {
		return nil
	}
	cert, err := ca.issueServing(now, r.Hosts...)
	if err != nil {
		return err
	}
	r.current.Store(cert)
	r.issuer.Store(&ca.cert.Raw)
	return nil
}

// loadOrCreateAuthority reads the authority, or makes one where there is none, or none that will do.
func (r *Rotator) loadOrCreateAuthority(ctx context.Context) (ca *certificateAuthority, trusted []byte, err error) {
	var secret corev1.Secret
	err = r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: secretName}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read the Secret %s: %w", secretName, err)
	}
	now, missing := r.Clock.Now(), k8serrors.IsNotFound(err)
	if !missing {
		ca, err = decodeAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err == nil && !needsRenewal(ca.cert, now) {
			return ca, trustBundle(ca, secret.Data[bundleKey], now), nil
		}
	}
	if ca, err = newAuthority(now); err != nil {
		return nil, nil, err
	}
	trusted = trustBundle(ca, secret.Data[bundleKey], now)
	cert, key, err := ca.encodePEM()
	if err != nil {
		return nil, nil, err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, bundleKey: trusted}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: r.Namespace, Name: secretName}
		err = r.Client.Create(ctx, &secret)
	} else {
		err = r.Client.Update(ctx, &secret)
	}
	if k8serrors.IsAlreadyExists(err) || k8serrors.IsConflict(err) {
		return r.loadOrCreateAuthority(ctx) // Another replica was first, and its authority is as good.
	}
	if err != nil {
		return nil, nil, fmt.Errorf("write the Secret %s: %w", secretName, err)
	}
	return ca, trusted, nil
}

// injectBundles writes the trusted authorities into the webhook configurations. Configurations that are not installed are left out.
func (r *Rotator) injectBundles(ctx context.Context, trusted []byte) error {
	name := client.ObjectKey{Name: configurationName}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return errors.Join(
		r.injectBundle(ctx, name, mutating, func() (configs []*admissionregistrationv1.WebhookClientConfig) {
			for i := range mutating.Webhooks {
				configs = append(configs, &mutating.Webhooks[i].ClientConfig)
			}
			return configs
		}, trusted),
		r.injectBundle(ctx, name, validating, func() (configs []*admissionregistrationv1.WebhookClientConfig) {
			for i := range validating.Webhooks {
				configs = append(configs, &validating.Webhooks[i].ClientConfig)
			}
			return configs
		}, trusted),
	)
}

func (r *Rotator) injectBundle(ctx context.Context, name client.ObjectKey, obj client.Object,
	configs func() []*admissionregistrationv1.WebhookClientConfig, trusted []byte,
) error {
	err := r.Reader.Get(ctx, name, obj)
	if k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the webhook configuration: %w", err)
	}
	before, ok := obj.DeepCopyObject().(client.Object)
	changed := false
	for _, c := range configs() {
		changed = changed || !bytes.Equal(c.CABundle, trusted)
		c.CABundle = trusted
	}
	if !ok || !changed {
		return nil
	}
	if err := r.Client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("tell the API server whom to trust: %w", err)
	}
	return nil
}
