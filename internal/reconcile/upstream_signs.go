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

// signsInterval is the time between two checks for the upstream project's controller.
const signsInterval = 30 * time.Second

// signsRetry is the interval to the next check if a read failed.
const signsRetry = time.Second

// UpstreamSigns checks whether the controller of another project, such as Hive or MOCO, runs on the hub. All features
// that reconcile the project's kinds share one UpstreamSigns.
type UpstreamSigns struct {
	Upstream otherwriter.Upstream
	// Reader reads from the API server, not from a cache; if nil, nothing is found.
	Reader client.Reader

	mu sync.Mutex
	// next is the time of the next check.
	next    time.Time
	running string
	webhook string
	isSaid  bool
}

// read returns the evidence that the other project's controller runs, and the name of its webhook configuration. If a
// read fails, the last result is used. It reads only namespaces that administrators control, so that a Lease with the
// upstream's name in a tenant's namespace does not stop Torpor for all users.
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
	if err == nil || webhook != "" { // A webhook that was found counts, even if another read failed.
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
		log.FromContext(ctx).Info("Cannot determine whether the controller of another project runs; objects that it has written are still detected",
			"project", s.Upstream.Name, "error", err.Error())
	}
}

// findWebhook returns the name of the webhook configuration, and the namespaces of the Services that serve its
// webhooks.
func (s *UpstreamSigns) findWebhook(ctx context.Context) (found string, namespaces []string, err error) {
	note := func(name string, c admissionregistrationv1.WebhookClientConfig) {
		found = name
		// Hive's webhook is served through the API server, so its Service is in the namespace default, where Hive does
		// not run.
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

// get reads an object. If the object does not exist, it returns no error and does not change into.
func (s *UpstreamSigns) get(ctx context.Context, namespace, name string, into client.Object) error {
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if err == nil || k8serrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("read %s: %w", name, err)
}

func isHeld(l coordinationv1.LeaseSpec, now time.Time) bool {
	return l.HolderIdentity != nil && *l.HolderIdentity != "" && l.RenewTime != nil && l.LeaseDurationSeconds != nil &&
		now.Before(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second))
}
