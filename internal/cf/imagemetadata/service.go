// SPDX-License-Identifier: Apache-2.0

// Package imagemetadata reads the metadata of apps' images from their registries: the digest, the exposed ports and the
// user. Tenants choose the images. A Policy therefore defines which servers may be contacted, and each request has
// limits for time and size.
package imagemetadata

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/background"
	"github.com/torpor-dev/torpor/internal/cf/build"
)

const (
	// askTimeout limits the time for all requests about one image. The CF API waits longer before it responds to a
	// client.
	askTimeout = 5 * time.Second
	// waitLimit is the maximum time that a Question may wait in the queue. After that, the droplet uses the tag without
	// a digest.
	waitLimit = 10 * time.Second
	// silentFor is the time for which a registry that did not respond is not contacted again. Otherwise, every build
	// would be delayed in a cluster without internet access.
	silentFor = time.Minute
	// maxAtOnce limits the images that are looked up concurrently. maxOfRegistry and maxOfSpace limit them per registry
	// and per space.
	maxAtOnce, maxOfRegistry, maxOfSpace = 16, 4, 2
	// maxWaiting limits the number of Questions in the queue.
	maxWaiting = 1000
	// maxSilent limits the number of cached registries that did not respond.
	maxSilent = 1000
	// maxPullSecrets limits the number of pull Secrets that are read for a package.
	maxPullSecrets = 10
)

// Question requests the metadata of a build's image.
type Question struct {
	// Build is the build that needs a droplet. UID distinguishes it from a build with the same name that was deleted.
	Build types.NamespacedName
	UID   types.UID
	// Registry holds the image of the package and its pull Secrets.
	Registry korifiv1alpha1.Registry
}

// Service contacts registries in the background. A reconciliation does not wait for the registry; the build is enqueued
// again once the result is available. The fields must be set before Start.
type Service struct {
	// Enqueue enqueues a build without blocking.
	Enqueue func(build types.NamespacedName)
	// ReadSecret reads a Secret in the namespace of a build.
	ReadSecret func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error)

	policy    Policy
	clock     clock.PassiveClock
	transport *guardedTransport
	// timeout is askTimeout, except in tests.
	timeout time.Duration
	asked   *background.Service[types.NamespacedName, askedImage]
	// silent maps registries to the time until which they are not contacted.
	silent *lru.Cache
}

// askedImage is a Question with its result. answer is nil until the result is available.
type askedImage struct {
	Question
	named  reference.Named
	answer *build.ImageAnswer
}

// NewService returns a service that contacts no registry before Start. If trusted is nil, the system's certificate
// authorities are trusted.
func NewService(p Policy, now clock.PassiveClock, trusted *tls.Config) *Service {
	s := &Service{policy: p, clock: now, transport: newGuardedTransport(p, trusted), timeout: askTimeout, silent: lru.New(maxSilent)}
	s.asked = background.NewService(now, s.take)
	return s
}

// RequestAnswer returns the metadata of a build's image, or the reason why the metadata is unknown. It returns false if
// there is no result yet; the build is enqueued once the result is available. A registry is contacted only once for
// each build, and the result is kept until ForgetBuild.
func (s *Service) RequestAnswer(q Question) (build.ImageAnswer, bool) {
	s.asked.Lock()
	defer s.asked.Unlock()
	known := s.asked.Get(q.Build)
	if known != nil && known.UID == q.UID && known.Registry.Image == q.Registry.Image {
		if known.answer == nil {
			return build.ImageAnswer{}, false
		}
		return *known.answer, true
	}
	next := askedImage{Question: q}
	if answer, isKnown := s.answerUnasked(&next); isKnown {
		return answer, true
	}
	s.asked.Put(q.Build, next)
	s.asked.Ask(q.Build, s.clock.Now())
	return build.ImageAnswer{}, false
}

// ForgetBuild drops the result for a completed or deleted build.
func (s *Service) ForgetBuild(name types.NamespacedName) {
	s.asked.Lock()
	defer s.asked.Unlock()
	s.asked.Forget(name)
}

// answerUnasked returns a result if the registry must not be contacted, for example because it did not respond
// recently. Otherwise it returns false.
func (s *Service) answerUnasked(a *askedImage) (build.ImageAnswer, bool) {
	if s.policy.isEmpty() {
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "the manager contacts no registry, because of --image-registries=none or --trust-node-images"}, true
	}
	named, err := reference.ParseNormalizedNamed(a.Registry.Image)
	if err != nil {
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: "expected an image such as registry.example.com/shop:1, found another name; push an image with a valid name"}, true
	}
	a.named = named
	switch {
	case !s.policy.mayAsk(registryHost(named)):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list " + reference.Domain(named)}, true
	case s.isSilent(reference.Domain(named)):
		return silentAnswer(named), true
	case s.asked.CountWaiting(background.Share{}) >= maxWaiting:
		return busyAnswer(), true
	default:
		return build.ImageAnswer{}, false
	}
}

func silentAnswer(named reference.Named) build.ImageAnswer {
	return build.ImageAnswer{Reason: korifiv1alpha1.RegistrySilentReason, Message: reference.Domain(named) + " did not respond a moment ago; push again when it responds"}
}

func busyAnswer() build.ImageAnswer {
	return build.ImageAnswer{Reason: korifiv1alpha1.RegistryBusyReason, Message: "the manager is reading the metadata of too many images; push again later"}
}

func (s *Service) isSilent(registry string) bool {
	until, isKnown := s.silent.Get(registry)
	at, isTime := until.(time.Time)
	return isKnown && isTime && s.clock.Now().Before(at)
}

// Start implements manager.Runnable. It returns when ctx and all running lookups have ended.
func (s *Service) Start(ctx context.Context) error {
	defer s.transport.closeIdleConnections()
	return s.asked.Start(ctx)
}

// take returns the call that looks up an image. It stores a failure instead if the registry did not respond recently,
// or if the Question has waited too long. Questions above the limit for their registry or space wait.
func (s *Service) take(_ types.NamespacedName, a *askedImage, due time.Time) background.Call {
	registry := reference.Domain(a.named)
	switch {
	case s.isSilent(registry):
		s.keep(a, silentAnswer(a.named))
	case s.clock.Since(due) > waitLimit:
		s.keep(a, busyAnswer())
	default:
		shares := []background.Share{
			{Name: "all", Limit: maxAtOnce}, {Name: "registry/" + registry, Limit: maxOfRegistry}, {Name: "space/" + a.Build.Namespace, Limit: maxOfSpace},
		}
		return background.Call{Timeout: s.timeout, Shares: shares, Do: func(ctx context.Context) func() {
			answer := s.ask(ctx, a)
			return func() { s.keep(a, answer) }
		}}
	}
	return background.Call{}
}

// ask looks up an image, and records registries that do not respond.
func (s *Service) ask(ctx context.Context, a *askedImage) build.ImageAnswer {
	var secrets []corev1.Secret
	for _, ref := range a.Registry.ImagePullSecrets[:min(len(a.Registry.ImagePullSecrets), maxPullSecrets)] {
		secret, err := s.ReadSecret(ctx, types.NamespacedName{Namespace: a.Build.Namespace, Name: ref.Name})
		switch {
		case k8serrors.IsNotFound(err):
			// A missing Secret is skipped, as in the kubelet.
		case err != nil:
			return explainFailure(errUnreadableSecret, a.named)
		default:
			secrets = append(secrets, *secret)
		}
	}
	answer := imageReader{s.policy, s.transport}.read(ctx, a.named, secrets)
	if answer.Reason == korifiv1alpha1.RegistrySilentReason {
		s.silent.Add(reference.Domain(a.named), s.clock.Now().Add(silentFor))
	}
	return answer
}

// keep stores the result of a lookup, and enqueues the build.
func (s *Service) keep(a *askedImage, answer build.ImageAnswer) {
	a.answer = &answer
	s.Enqueue(a.Build)
}
