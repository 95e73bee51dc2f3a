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
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

const (
	// headerTimeout and maxHeader are for who sends headers byte by byte, or without end; a certificate with its chain
	// and its key fits.
	headerTimeout  = 5 * time.Second
	maxHeaderBytes = 64 << 10
	// writeTimeout is for who does not read: twice as long as an answer may be held.
	writeTimeout = 2 * requestTimeout
	idleTimeout  = 2 * time.Minute
	// shutdownTimeout bounds the wait for requests in flight.
	shutdownTimeout = 15 * time.Second
	cacheQPS        = 100
)

// Options are what the command line sets.
type Options struct {
	// Address is host:port to serve on.
	Address string
	// Certificate and Key are files in PEM, read again when they change; without them Folder gets a pair of its own.
	Certificate, Key, Folder string
	// RequestsPerSecond is how many one caller may send.
	RequestsPerSecond float64
	// Namespace is that of CFOrgs.
	Namespace string
	// MetricsAddress is host:port to serve metrics on, without TLS; "0" and empty serve none.
	MetricsAddress string
	// Log gets everything that is worth telling.
	Log *slog.Logger
	// Ready, if set, is told the address when requests are answered.
	Ready func(address string)
}

// Run serves the API until ctx ends. cfg is the API's own way to the API server: what it reads, it reads into a cache;
// what callers may see of that, and all that they change, is decided by their own credentials.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	log.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	f, err := newServer(cfg, o)
	if err != nil {
		return err
	}
	tlsConfig, err := newTLSConfig(ctx, o)
	if err != nil {
		return err
	}
	// The cache outlives the signal to stop, because requests in flight are answered from it.
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 3)
	if err := f.api.Store.Start(ctx, living, ended); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	measured, err := f.metrics.startServer(ctx, o.MetricsAddress, ended)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := f.httpServer(tlsConfig)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	o.Log.Info("serving the CF API", "address", listener.Addr().String())
	if o.Ready != nil {
		o.Ready(listener.Addr().String())
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, f.shutdown(living, server), measured.Close())
}

// httpServer is patient with nobody for long.
func (f *server) httpServer(tlsConfig *tls.Config) *http.Server {
	server := &http.Server{
		Handler: f.newHandler(), TLSConfig: tlsConfig, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(f.api.Store.StopWaiting)
	return server
}

// shutdown finishes the requests in flight; answers that are held are given as things stand.
func (f *server) shutdown(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	f.log.Info("finishing requests")
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("finish requests: %w", err)
	}
	return nil
}

func newServer(cfg *rest.Config, o Options) (*server, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), korifiv1alpha1.AddToScheme(known), torporv1alpha1.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.UserAgent = cacheQPS, cacheQPS, "torpor-cf-api"
	kept, err := repositories.NewStore(own, known, o.Namespace)
	if err != nil {
		return nil, err
	}
	measured := newMetrics()
	callers, err := authorization.NewAuthenticator(authorization.Options{
		Config: cfg, Scheme: known, Clock: clock.RealClock{}, RequestsPerSecond: o.RequestsPerSecond, Metrics: measured.callers,
	})
	if err != nil {
		return nil, err
	}
	api := &handlers.API{Store: kept, Clock: clock.RealClock{}, Polls: handlers.NewPollTracker(clock.RealClock{})}
	return &server{api: api, callers: callers, metrics: measured, log: o.Log}, nil
}

// newTLSConfig are those of the files, as they are this moment.
func newTLSConfig(ctx context.Context, o Options) (*tls.Config, error) {
	certificate, key := o.Certificate, o.Key
	if certificate == "" && key == "" && o.Folder != "" {
		var err error
		if certificate, key, err = selfSignedCertificate(o.Folder, clock.RealClock{}.Now()); err != nil {
			return nil, err
		}
	}
	if certificate == "" || key == "" {
		return nil, errors.New("expected --tls-cert and --tls-key, or --tls-folder for a certificate of its own, because clients send keys; found neither")
	}
	watcher, err := certwatcher.New(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			o.Log.Error("the certificate is not watched any more; restart when it changes", "error", err)
		}
	}()
	return &tls.Config{GetCertificate: watcher.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}
