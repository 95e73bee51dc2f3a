// SPDX-License-Identifier: Apache-2.0

// Package certrotation issues the serving certificate of the admission webhooks and adds its authority to the webhook
// configurations. A Secret stores one authority for all replicas. Each replica signs its own certificate with this
// authority, and keeps the certificate only in memory.
package certrotation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// secretName is the name of the Secret with the authority. configurationName is the name of the webhook
	// configurations in config/webhook.
	secretName        = "torpor-webhook"
	configurationName = "torpor"
	bundleKey         = "ca.crt"

	interval    = 10 * time.Second
	soon        = time.Second
	callTimeout = 10 * time.Second
)

var errNoCertificate = errors.New("expected a serving certificate, found none; the manager creates it when the API server responds")

// Rotator keeps the certificate of one replica valid, and makes the API server trust it.
type Rotator struct {
	// Reader reads without a cache, and Client writes.
	Reader client.Reader
	Client client.Client
	// Namespace is the namespace of the Secret and the Service. Service is the name of the Service. Hosts are the names
	// and addresses at which the API server calls the webhooks.
	Namespace, Service string
	Hosts              []string
	// Files, if set, provides the certificate. In that case, no Secret is read and no webhook configuration is written.
	Files *certwatcher.CertWatcher
	// LeavesBundles is true if another controller writes the CA bundles of the configurations.
	LeavesBundles bool
	// ServesApps is true if this manager runs the controllers of apps. If it is false, or if Kind is not served, the
	// webhook configurations of apps may be missing.
	ServesApps bool
	// Kind is the kind that the webhooks of apps admit.
	Kind schema.GroupVersionKind
	// OptionalConfigurations lists the names of further MutatingWebhookConfigurations, which need not exist.
	OptionalConfigurations []string
	// Clock is the source of time and of ticks.
	Clock   clock.Clock
	Metrics *Metrics

	current atomic.Pointer[tls.Certificate]
	// issuer is the authority that signed the current certificate.
	issuer atomic.Pointer[[]byte]
	// verdict is the result of the last check; it is nil before the first check.
	verdict atomic.Pointer[verdict]
}

// verdict holds the reason why the API server cannot call this replica, or nil if it can.
type verdict struct{ err error }

// GetCertificate implements the GetCertificate function of tls.Config.
func (r *Rotator) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if r.Files != nil {
		return r.Files.GetCertificate(hello)
	}
	if cert := r.current.Load(); cert != nil {
		return cert, nil
	}
	return nil, errNoCertificate
}

// CheckTrust is a readiness check. It returns an error unless the API server can call this replica and trusts its
// certificate.
func (r *Rotator) CheckTrust(*http.Request) error {
	if found := r.verdict.Load(); found != nil {
		return found.err
	}
	return errNoCertificate
}

// NeedLeaderElection returns false, because every replica serves the webhooks.
func (*Rotator) NeedLeaderElection() bool { return false }

// +kubebuilder:rbac:groups="",resources=secrets,namespace=torpor-system,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,namespace=torpor-system,resourceNames=torpor-webhook,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=torpor;torpor-hibernation-record;torpor-mysql-record;torpor-slumber-record;torpor-workloads-record,verbs=get;patch

// Start maintains the certificate until ctx ends. Failures are retried, and the last certificate stays in use.
func (r *Rotator) Start(ctx context.Context) error {
	logged := ""
	for {
		wait := interval
		err := r.rotate(ctx)
		if err != nil && !k8serrors.IsConflict(err) && ctx.Err() == nil {
			r.Metrics.failures.Inc()
			if err.Error() != logged {
				log.FromContext(ctx).Error(err, "The API server cannot call the webhook; retrying")
				logged = err.Error()
			}
			wait = soon
		}
		if err == nil {
			logged = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(wait):
		}
	}
}

// rotate renews the certificate if necessary, and checks it.
//
// Invariant: an authority signs a certificate only after injectBundles has made the API server trust that authority,
// unless LeavesBundles is set.
func (r *Rotator) rotate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var renewal error
	if r.Files == nil {
		renewal = r.renew(ctx)
	}
	cert, err := r.GetCertificate(nil)
	if err != nil {
		err = cmp.Or(renewal, err)
		r.verdict.Store(&verdict{err})
		return err
	}
	r.Metrics.expiry.Set(float64(cert.Leaf.NotAfter.Unix()))
	found, err := r.findMistrust(ctx, cert)
	if err == nil || r.verdict.Load() == nil {
		r.verdict.Store(&verdict{errors.Join(found, err)})
	}
	return errors.Join(renewal, err, found)
}

func (r *Rotator) renew(ctx context.Context) error {
	ca, trusted, err := r.loadOrCreateAuthority(ctx)
	if err != nil {
		return err
	}
	if !r.LeavesBundles {
		if err := r.injectBundles(ctx, trusted); err != nil {
			return err
		}
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

// loadOrCreateAuthority reads the authority, and creates a new one if it is missing, invalid or due for renewal.
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
		return r.loadOrCreateAuthority(ctx) // Another replica has created the authority in the meantime.
	}
	if err != nil {
		return nil, nil, fmt.Errorf("write the Secret %s: %w", secretName, err)
	}
	return ca, trusted, nil
}
