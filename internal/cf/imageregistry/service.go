// SPDX-License-Identifier: Apache-2.0

// Package imageregistry asks the registries of apps' images what an image is: its digest, the ports that it says it listens on, and its
// user. Images are named by tenants, so a Policy says which servers may be asked, and each question has a budget of time and bytes.
package imageregistry

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/build"
)

const (
	// askTimeout bounds all that is asked about one image. The CF API holds the answer to a client longer than that.
	askTimeout = 5 * time.Second
	// waitLimit is for how long an image waits for others before its tag has to do.
	waitLimit = 10 * time.Second
	// silentFor is for how long a registry is not asked again that did not answer, so that builds of a cluster without a way out of it
	// are not slowed one by one.
	silentFor = time.Minute
	// maxAtOnce are asked for at the same time, and fewer of one registry and for one space.
	maxAtOnce, maxOfRegistry, maxOfSpace = 16, 4, 2
	// maxWaiting are asked for or wait.
	maxWaiting = 1000
	// maxSilent registries are remembered.
	maxSilent = 1000
	// maxPullSecrets of a package are read.
	maxPullSecrets = 10
)

// Question is what a pass wants to know.
type Question struct {
	// Build is whose droplet is made, and UID tells it from one of the same name.
	Build types.NamespacedName
	UID   types.UID
	// Registry is that of the package.
	Registry korifiv1alpha1.Registry
}

// Service asks beside the passes, which end until there is an answer. Its fields are set before it is started.
type Service struct {
	// Enqueue has a build's pass run soon, and does not block.
	Enqueue func(build types.NamespacedName)
	// ReadSecret reads a Secret of the namespace of a build.
	ReadSecret func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error)

	policy    Policy
	clock     clock.PassiveClock
	transport *guardedTransport
	wake      chan struct{}
	// timeout is askTimeout.
	timeout time.Duration

	mu      sync.Mutex
	asked   map[types.NamespacedName]*askedImage
	waiting []*askedImage
	running int
	// busy counts what is asked for by registry and by space.
	busy map[string]int
	// silent has until when a registry is not asked.
	silent *lru.Cache
}

// askedImage is one question with its answer. The lock of its service guards it.
type askedImage struct {
	Question
	named    reference.Named
	waitsFor time.Time
	answer   *build.ImageAnswer
}

// NewService returns a service that asks nobody before it is started. Trusted is nil for the certificate authorities of the system.
func NewService(p Policy, now clock.PassiveClock, trusted *tls.Config) *Service {
	return &Service{
		policy: p, clock: now, transport: newGuardedTransport(p, trusted), wake: make(chan struct{}, 1), timeout: askTimeout,
		asked: map[types.NamespacedName]*askedImage{}, busy: map[string]int{}, silent: lru.New(maxSilent),
	}
}

// RequestAnswer returns what is known of an image; false if the pass has to wait until it is enqueued. Each build is asked for once, and
// its answer is kept until Forget.
func (s *Service) RequestAnswer(q Question) (build.ImageAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.asked[q.Build]
	if known != nil && known.UID == q.UID && known.Registry.Image == q.Registry.Image {
		if known.answer == nil {
			return build.ImageAnswer{}, false
		}
		return *known.answer, true
	}
	next := &askedImage{Question: q, waitsFor: s.clock.Now()}
	if answer, isKnown := s.answerUnasked(next); isKnown {
		return answer, true
	}
	s.asked[q.Build] = next
	s.waiting = append(s.waiting, next)
	s.wakeUp()
	return build.ImageAnswer{}, false
}

// ForgetBuild drops what is known of a build that is made, or gone.
func (s *Service) ForgetBuild(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.asked[name]; known != nil {
		delete(s.asked, name)
		s.waiting = slices.DeleteFunc(s.waiting, func(a *askedImage) bool { return a == known })
	}
}

// answerUnasked answers where the registry need not or may not be asked.
func (s *Service) answerUnasked(a *askedImage) (build.ImageAnswer, bool) {
	if s.policy.isEmpty() {
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "the manager asks no registry, by --image-registries=none or --trust-node-images"}, true
	}
	named, err := reference.ParseNormalizedNamed(a.Registry.Image)
	if err != nil {
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: "expected an image such as registry.example.com/shop:1, found another name; push one that nodes can read"}, true
	}
	a.named = named
	switch {
	case !s.policy.mayAsk(registryHost(named)):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list " + reference.Domain(named)}, true
	case s.isSilent(reference.Domain(named)):
		return silentAnswer(named), true
	case len(s.waiting) >= maxWaiting:
		return busyAnswer(), true
	default:
		return build.ImageAnswer{}, false
	}
}

func silentAnswer(named reference.Named) build.ImageAnswer {
	return build.ImageAnswer{Reason: korifiv1alpha1.RegistrySilentReason, Message: reference.Domain(named) + " did not answer a moment ago; push again once it does"}
}

func busyAnswer() build.ImageAnswer {
	return build.ImageAnswer{Reason: korifiv1alpha1.RegistryBusyReason, Message: "too many images are asked for at the moment; push again later"}
}

func (s *Service) isSilent(registry string) bool {
	until, isKnown := s.silent.Get(registry)
	at, isTime := until.(time.Time)
	return isKnown && isTime && s.clock.Now().Before(at)
}

func (s *Service) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable. It returns when ctx ends, with all that it has started.
func (s *Service) Start(ctx context.Context) error {
	var work sync.WaitGroup
	defer s.transport.closeIdleConnections()
	defer work.Wait()
	for {
		for next := s.takeNext(); next != nil; next = s.takeNext() {
			work.Go(func() { s.publish(ctx, next, s.ask(ctx, next)) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// takeNext returns the oldest question that may be asked now, and answers those that need not be asked any more. What one registry or
// one space has too many of waits for its own.
func (s *Service) takeNext() *askedImage {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next *askedImage
	s.waiting = slices.DeleteFunc(s.waiting, func(a *askedImage) bool {
		registry, space := busyKeys(a)
		switch {
		case s.isSilent(reference.Domain(a.named)):
			s.keep(a, silentAnswer(a.named))
		case s.clock.Since(a.waitsFor) > waitLimit:
			s.keep(a, busyAnswer())
		case next != nil || s.running >= maxAtOnce || s.busy[registry] >= maxOfRegistry || s.busy[space] >= maxOfSpace:
			return false
		default:
			next = a
			s.running, s.busy[registry], s.busy[space] = s.running+1, s.busy[registry]+1, s.busy[space]+1
		}
		return true
	})
	return next
}

func busyKeys(a *askedImage) (registry, space string) {
	return "registry/" + reference.Domain(a.named), "space/" + a.Build.Namespace
}

// ask does what one question needs, within its time.
func (s *Service) ask(ctx context.Context, a *askedImage) build.ImageAnswer {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var secrets []corev1.Secret
	for _, ref := range a.Registry.ImagePullSecrets[:min(len(a.Registry.ImagePullSecrets), maxPullSecrets)] {
		secret, err := s.ReadSecret(ctx, types.NamespacedName{Namespace: a.Build.Namespace, Name: ref.Name})
		switch {
		case k8serrors.IsNotFound(err):
			// A node pulls without it, too.
		case err != nil:
			return explainFailure(errUnreadableSecret, a.named)
		default:
			secrets = append(secrets, *secret)
		}
	}
	return imageReader{s.policy, s.transport}.read(ctx, a.named, secrets)
}

// publish keeps an answer and enqueues the build.
func (s *Service) publish(ctx context.Context, a *askedImage, answer build.ImageAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	registry, space := busyKeys(a)
	s.running--
	for _, key := range []string{registry, space} {
		if s.busy[key]--; s.busy[key] == 0 {
			delete(s.busy, key)
		}
	}
	s.wakeUp()
	if ctx.Err() != nil {
		return // What the end of the manager cut off is not about the registry.
	}
	if answer.Reason == korifiv1alpha1.RegistrySilentReason {
		s.silent.Add(reference.Domain(a.named), s.clock.Now().Add(silentFor))
	}
	s.keep(a, answer)
}

// keep answers a question that nobody has forgotten.
func (s *Service) keep(a *askedImage, answer build.ImageAnswer) {
	a.answer = &answer
	if s.asked[a.Build] == a {
		s.Enqueue(a.Build)
	}
}
