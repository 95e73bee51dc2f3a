// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

const (
	// headerTimeout and maxHeaderBytes limit slow or endless headers. A header must have room for a certificate with
	// its chain and its key.
	headerTimeout  = 5 * time.Second
	maxHeaderBytes = 64 << 10
	// writeTimeout closes connections of clients that do not read their response. It is twice the time limit of a
	// request.
	writeTimeout = 2 * requestTimeout
	idleTimeout  = 2 * time.Minute
	// shutdownTimeout limits the wait for requests in flight.
	shutdownTimeout = 15 * time.Second
	cacheQPS        = 100
	// These constants limit concurrent requests, in total and per caller. A manifest needs up to 30 MiB for a few
	// milliseconds. Reading logs needs up to 5 MiB until the kubelets and the client have finished.
	manifestSlots, manifestSlotsOfCaller = 3, 1
	logSlots, logSlotsOfCaller           = 16, 4
	uploadSlots, uploadSlotsOfCaller     = 8, 2
)

// Options holds the command-line settings.
type Options struct {
	// Address is the host:port to serve on.
	Address string
	// Certificate and Key are the paths of PEM files, which are read again when they change. Without them, a pair is
	// created in Folder.
	Certificate, Key, Folder string
	// RequestsPerSecond limits the requests of each caller.
	RequestsPerSecond float64
	// FailuresPerSecond limits the rate at which invalid credentials from one address are reviewed.
	FailuresPerSecond float64
	// MaxStaleness is the time for which the cache may lack a working watch before requests fail.
	MaxStaleness time.Duration
	// MaxInstances limits the number of instances of one process.
	MaxInstances int32
	// Namespace is the namespace of CFOrgs and CFDomains.
	Namespace string
	// ExternalURL is the base of every link, such as https://api.example.com. If it is empty, links use the host of the
	// request.
	ExternalURL string
	// BuilderURL is the address to which the code of packages is sent. BuilderTokenFile contains the token for it. Both
	// may be empty.
	BuilderURL, BuilderTokenFile string
	// MetricsAddress is the host:port to serve metrics on, without TLS. If it is "0" or empty, no metrics are served.
	MetricsAddress string
	Log            *slog.Logger
	// Ready, if set, is called with the server's address once the server accepts requests.
	Ready func(address string)
}

// Run serves the API until ctx is cancelled. cfg holds the API's own credentials, which only fill the cache. The
// caller's credentials decide which cached objects the caller can see, and which changes are allowed.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	log.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	s, err := newServer(cfg, o)
	if err != nil {
		return err
	}
	tlsConfig, err := newTLSConfig(ctx, o)
	if err != nil {
		return err
	}
	// The cache keeps running after the signal to stop, because requests in flight still read from it.
	cacheCtx, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCache()
	ended := make(chan error, 3)
	if err := s.api.Store.StartCache(ctx, cacheCtx, ended); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	metricsServer, err := s.metrics.startServer(ctx, o.MetricsAddress, ended)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	httpServer := s.newHTTPServer(tlsConfig)
	go func() { ended <- httpServer.ServeTLS(listener, "", "") }()
	o.Log.Info("serving the CF API", "address", listener.Addr().String())
	if o.Ready != nil {
		o.Ready(listener.Addr().String())
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, s.shutdown(cacheCtx, httpServer), metricsServer.Close())
}

// newHTTPServer returns a server with a timeout for each step that a client can delay.
func (s *server) newHTTPServer(tlsConfig *tls.Config) *http.Server {
	httpServer := &http.Server{
		Handler: s.newHandler(), TLSConfig: tlsConfig, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	httpServer.RegisterOnShutdown(s.api.Store.StopWaiting)
	return httpServer
}

// shutdown waits for the requests in flight. Requests that wait for a change are answered immediately, with the current
// state.
func (s *server) shutdown(ctx context.Context, httpServer *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	s.log.Info("finishing requests")
	if err := httpServer.Shutdown(ctx); err != nil {
		return fmt.Errorf("finish requests: %w", err)
	}
	return nil
}

func newServer(cfg *rest.Config, o Options) (*server, error) {
	if o.MaxInstances < 1 || o.MaxInstances > korifiv1alpha1.MaxInstances {
		return nil, fmt.Errorf("expected --max-instances between 1 and %d, found %d", korifiv1alpha1.MaxInstances, o.MaxInstances)
	}
	external, err := parseExternalURL(o.ExternalURL)
	if err != nil {
		return nil, err
	}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), korifiv1alpha1.AddToScheme(known), torporv1alpha1.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.UserAgent = cacheQPS, cacheQPS, buildinfo.UserAgent("torpor-cf-api")
	store, err := repositories.NewStore(own, known, o.Namespace, o.MaxStaleness)
	if err != nil {
		return nil, err
	}
	counted := newMetrics()
	authenticator, err := authorization.NewAuthenticator(authorization.Options{
		Config: own, Scheme: known, Clock: clock.RealClock{}, RequestsPerSecond: o.RequestsPerSecond, FailuresPerSecond: o.FailuresPerSecond, Metrics: counted.callers,
	})
	if err != nil {
		return nil, err
	}
	builder, err := handlers.NewCodeBuilder(o.BuilderURL, o.BuilderTokenFile)
	if err != nil {
		return nil, err
	}
	api := &handlers.API{
		Store: store, Clock: clock.RealClock{}, Polls: handlers.NewPollTracker(clock.RealClock{}), Limits: payloads.ProcessLimits{MaxInstances: o.MaxInstances},
		Manifests: handlers.NewRequestSlots(manifestSlots, manifestSlotsOfCaller), Logs: handlers.NewRequestSlots(logSlots, logSlotsOfCaller),
		Uploads: handlers.NewRequestSlots(uploadSlots, uploadSlotsOfCaller), Builder: builder,
	}
	return &server{api: api, authenticator: authenticator, metrics: counted, externalURL: external, log: o.Log}, nil
}

// parseExternalURL parses a URL and removes the trailing slash, because paths are appended to it.
func parseExternalURL(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || strings.Trim(parsed.Path, "/") != "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", errors.New("expected --external-url such as https://api.example.com, without a user name, path, query or fragment; found another URL; correct the URL")
	}
	return "https://" + parsed.Host, nil
}

// newTLSConfig returns a TLS configuration that reloads the certificate when its files change.
func newTLSConfig(ctx context.Context, o Options) (*tls.Config, error) {
	certificate, key := o.Certificate, o.Key
	if certificate == "" && key == "" && o.Folder != "" {
		var err error
		if certificate, key, err = selfSignedCertificate(o.Folder); err != nil {
			return nil, err
		}
	}
	if certificate == "" || key == "" {
		return nil, errors.New("expected --tls-cert and --tls-key, or --tls-folder for a self-signed certificate, because clients send private keys; found neither")
	}
	watcher, err := certwatcher.New(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			o.Log.Error("the certificate file is no longer watched; restart torpor cf-api when the file changes", "error", err)
		}
	}()
	return &tls.Config{GetCertificate: watcher.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}
