// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	headerTimeout = 5 * time.Second
	// requestTimeout limits the duration of all requests except streams, which limit each write.
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// maxHeaderBytes allows for the largest cookie with a token, and maxBodyBytes for a token in a form.
	maxHeaderBytes, maxBodyBytes = 32 << 10, 32 << 10
	shutdownTimeout              = 5 * time.Second
	// callerRate limits the requests of a caller per second, far above the needs of a user with a browser. failureRate
	// limits the invalid tokens from one address per second, but tolerates mistyped tokens from several users.
	callerRate, failureRate = 20, 5
)

// Options configure the page.
type Options struct {
	// Address has the form host:port. Without CertFolder it must be a loopback address of the machine or the Pod, which
	// is reachable with kubectl port-forward.
	Address string
	// CertFolder contains tls.crt and tls.key. They are reloaded when they change.
	CertFolder string
	// PricesFolder contains the keys of the ConfigMap with prices, which are read whenever the savings are viewed. The
	// folder may be missing.
	PricesFolder string
	// Config has the credentials with which the page watches the objects. The visibility for a user depends on the
	// user's own rights.
	Config *rest.Config
	// Namespaces limits the watched namespaces. An empty list means all.
	Namespaces []string
	Clock      clock.WithTicker
	Log        logr.Logger
	Metrics    *Metrics
}

//go:embed assets
var assets embed.FS

// Server serves the page on every replica, including those that are not the leader.
type Server struct {
	Options
	kube          client.WithWatch
	authenticator *authorization.Authenticator
	inventory     *inventory
	foreign       *foreignKinds
	sources       []*scheduleSource
	streams       *streamSlots
	views         viewCache
	certificate   *certwatcher.CertWatcher
}

// New returns a server. It listens once it is started.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, inventory: newInventory(), streams: newStreamSlots(o.Metrics)}
	err := errors.Join(s.checkAddress(), s.loadCertificate(), s.connect())
	if err != nil {
		return nil, err
	}
	return s, nil
}

// checkAddress rejects plain HTTP except on a loopback address, because plain HTTP would expose tokens on the network.
func (s *Server) checkAddress() error {
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return fmt.Errorf("--page-address: expected host:port, found %q: %w", s.Address, err)
	}
	ip := net.ParseIP(host)
	if s.CertFolder == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--page-address: expected an address such as 127.0.0.1:8088, which kubectl port-forward reaches, or --page-cert-dir with a certificate; found %q without one", s.Address)
	}
	return nil
}

func (s *Server) loadCertificate() (err error) {
	if s.CertFolder == "" {
		return nil
	}
	if s.certificate, err = certwatcher.New(filepath.Join(s.CertFolder, "tls.crt"), filepath.Join(s.CertFolder, "tls.key")); err != nil {
		return fmt.Errorf("--page-cert-dir: expected tls.crt and tls.key in %s: %w", s.CertFolder, err)
	}
	return nil
}

func (s *Server) connect() error {
	known, err := newScheme()
	if err != nil {
		return err
	}
	if s.authenticator, err = authorization.NewAuthenticator(authorization.Options{
		Config: s.Config, Scheme: known, Mapper: func() meta.RESTMapper { return addSchedules(s.inventory.newMapper()) }, Clock: s.Clock, RequestsPerSecond: callerRate, FailuresPerSecond: failureRate, Metrics: authorization.NewCallerMetrics(),
	}); err != nil {
		return fmt.Errorf("create authenticator: %w", err)
	}
	connections, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	mapper := s.inventory.newMapper()
	mapper.Add(torporv1alpha1.StopAdapterKind(), meta.RESTScopeRoot)
	addSchedules(mapper)
	if s.kube, err = client.NewWithWatch(s.Config, client.Options{HTTPClient: connections, Scheme: known, Mapper: mapper}); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	s.sources = newScheduleSources(s.kube, s.watchedNamespaces())
	s.foreign = &foreignKinds{config: s.Config, http: connections, scheme: known, namespaces: s.watchedNamespaces(), inventory: s.inventory, log: s.Log}
	return nil
}

// newScheme returns a scheme with the kinds that the page reads and creates. Objects of StopAdapter kinds are
// unstructured.
func newScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	for _, k := range kinds.ListBuiltIn() {
		if err := k.AddToScheme(known); err != nil {
			return nil, fmt.Errorf("register %s: %w", k.GVK().Kind, err)
		}
	}
	for _, add := range []func(*runtime.Scheme) error{torporv1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return known, nil
}

// NeedLeaderElection returns false, because the page runs on every replica.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves the page until ctx is cancelled.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("--page-address: listen: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()                              // Cancel before waiting for the watches.
	for _, k := range s.inventory.listKinds() { // These are the kinds that need no StopAdapter.
		for _, namespace := range s.watchedNamespaces() {
			watches.Go(func() { s.inventory.watchKind(ctx, s.kube, k, namespace) })
		}
	}
	watches.Go(func() { s.foreign.run(ctx, s.kube) })
	for _, source := range s.sources {
		watches.Go(func() { source.run(ctx) })
	}
	watches.Go(func() { s.inventory.followActing(ctx, s.kube, s.Clock) })
	web := &http.Server{
		Handler: s.newHandler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx }, // Streams end with the server.
	}
	if s.certificate != nil {
		watches.Go(func() { _ = s.certificate.Start(ctx) }) // Start returns when ctx is cancelled, and logs its errors.
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: s.certificate.GetCertificate, MinVersion: tls.VersionTLS13})
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	s.Log.Info("serving the page", "address", listener.Addr().String(), "tls", s.certificate != nil)
	select {
	case err := <-ended:
		return fmt.Errorf("serve the page: %w", err)
	case <-ctx.Done():
	}
	final, end := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer end()
	if err := web.Shutdown(final); err != nil {
		return errors.Join(fmt.Errorf("finish the requests of the page: %w", err), web.Close())
	}
	return nil
}

func (s *Server) watchedNamespaces() []string {
	if len(s.Namespaces) == 0 {
		return []string{""}
	}
	return s.Namespaces
}
