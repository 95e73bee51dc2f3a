// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
)

// signsInterval is how long a result is used before the upstream is checked again.
const signsInterval = 30 * time.Second

// signsRetry is the interval to the next check if a read failed.
const signsRetry = time.Second

// UpstreamSigns checks whether another project runs on the hub. All features of the project's kinds share one.
type UpstreamSigns struct {
	Upstream otherwriter.Upstream
	// Reader reads from the API server, not from a cache; if nil, nothing is found.
	Reader client.Reader

	mu sync.Mutex
	// next is when to check again.
	next    time.Time
	running string
	webhook string
	isSaid  bool
}

// read returns the evidence that the upstream runs, and the name of its webhook configuration. If a read fails, the
// last result is used. It reads only namespaces that administrators control: a Lease of that name in a tenant's
// namespace must not stop Torpor for all users.
func (s *UpstreamSigns) read(ctx context.Context, now time.Time) (running, webhook string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Reader == nil || now.Before(s.next) {
		return s.running, s.webhook
	}
	s.next = now.Add(signsInterval)
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	webhook, namespaces, err := s.findWebhook(ctx)
	if err == nil || webhook != "" { // Found signs count, even if others could not be read.
		s.webhook = webhook
	}
	s.note(ctx, err, now)
	if running, err = s.findRunning(ctx, append(namespaces, s.Upstream.Namespaces...), now); err == nil || running != "" {
		s.running = running
	}
	s.note(ctx, err, now)
	return s.running, s.webhook
}

// note logs the first read error. Unless a permission is missing, the next check comes soon.
func (s *UpstreamSigns) note(ctx context.Context, err error, now time.Time) {
	if err != nil && !k8serrors.IsForbidden(err) {
		s.next = now.Add(signsRetry)
	}
	if err != nil && !s.isSaid {
		s.isSaid = true
		log.FromContext(ctx).Info("Whether another project runs is not known; its field managers on objects still count", "project", s.Upstream.Name, "error", err.Error())
	}
}

// findWebhook returns the name of the webhook configuration, and the namespaces of the Services that serve its
// webhooks.
func (s *UpstreamSigns) findWebhook(ctx context.Context) (found string, namespaces []string, err error) {
	note := func(name string, c admissionregistrationv1.WebhookClientConfig) {
		found = name
		// Hive's webhook is served through the API server, whose Service is not Hive's.
		if c.Service != nil && c.Service.Namespace != "default" {
			namespaces = append(namespaces, c.Service.Namespace)
		}
	}
	for _, name := range s.Upstream.Webhooks {
		var mutating admissionregistrationv1.MutatingWebhookConfiguration
		if e := s.get(ctx, "", name, &mutating); e != nil {
			err = e
		}
		for _, w := range mutating.Webhooks {
			note(name, w.ClientConfig)
		}
		var validating admissionregistrationv1.ValidatingWebhookConfiguration
		if e := s.get(ctx, "", name, &validating); e != nil {
			err = e
		}
		for _, w := range validating.Webhooks {
			note(name, w.ClientConfig)
		}
	}
	return found, namespaces, err
}

func (s *UpstreamSigns) findRunning(ctx context.Context, namespaces []string, now time.Time) (found string, err error) {
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		var lease coordinationv1.Lease
		var deployment appsv1.Deployment
		if e := s.get(ctx, namespace, s.Upstream.Lease, &lease); e != nil {
			err = e
		}
		if e := s.get(ctx, namespace, s.Upstream.Deployment, &deployment); e != nil {
			err = e
		}
		switch {
		case isHeld(lease.Spec, now):
			return fmt.Sprintf("its Lease %s/%s is held", namespace, s.Upstream.Lease), nil
		case deployment.Status.ReadyReplicas > 0:
			return fmt.Sprintf("its Deployment %s/%s has ready Pods", namespace, s.Upstream.Deployment), nil
		}
	}
	return "", err
}

// get reads an object; it leaves into empty if the object does not exist.
func (s *UpstreamSigns) get(ctx context.Context, namespace, name string, into client.Object) error {
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if err == nil || k8serrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("look for %s: %w", name, err)
}

func isHeld(l coordinationv1.LeaseSpec, now time.Time) bool {
	return l.HolderIdentity != nil && *l.HolderIdentity != "" && l.RenewTime != nil && l.LeaseDurationSeconds != nil &&
		now.Before(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second))
}
