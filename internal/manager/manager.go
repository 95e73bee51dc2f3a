// SPDX-License-Identifier: Apache-2.0

// Package manager wires Torpor's features together; nothing else does.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/actuator"
	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	app "github.com/torpor-dev/torpor/internal/cf/app/controller"
	build "github.com/torpor-dev/torpor/internal/cf/build/controller"
	deployment "github.com/torpor-dev/torpor/internal/cf/deployment/controller"
	lrp "github.com/torpor-dev/torpor/internal/cf/lrp/controller"
	orgspace "github.com/torpor-dev/torpor/internal/cf/orgspace/controller"
	process "github.com/torpor-dev/torpor/internal/cf/process/controller"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	hibernation "github.com/torpor-dev/torpor/internal/hibernation/controller"
	backup "github.com/torpor-dev/torpor/internal/mysql/backup/controller"
	clustering "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	provisioning "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
)

const (
	defaultNamespace = "torpor-system"

	// noLimit: the API server shares itself out fairly, and each controller has few workers. With a limit here, a hundred apps
	// that restart at once would wait for each other.
	noLimit = -1
	// shutdownTimeout bounds the wait for passes in flight; everything they do is safe to cut off.
	shutdownTimeout = 20 * time.Second
)

// Options are what the command line sets.
type Options struct {
	// MetricsAddress and ProbeAddress are host:port to serve on; "0" serves nothing.
	MetricsAddress, ProbeAddress string
	// LeaderElection lets only one of several managers act; Namespace is where its Lease lives.
	LeaderElection bool
	Namespace      string
	// AWSEndpoint replaces the endpoint of EC2; empty means AWS's own.
	AWSEndpoint string
	// WebhookAddress is host:port on which the admission of apps is served; "0" serves nothing.
	WebhookAddress string
	// Image is Torpor's own, for the Pods that bring its program to other containers; empty means that none can be made.
	Image string
	// Log gets everything that is worth telling.
	Log *slog.Logger
}

// Run runs the manager until ctx ends. None of the kinds that it handles needs to be installed.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	logger := logr.FromSlogHandler(o.Log.Handler())
	log.SetLogger(logger)
	s, err := newScheme()
	if err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent = noLimit, "torpor"
	mgr, err := manager.New(cfg, conditional.ManagerOptions(manager.Options{
		Scheme: s, Logger: logger,
		Metrics:                server.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.ProbeAddress,
		LeaderElection:         o.LeaderElection, LeaderElectionID: "torpor-manager", LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownTimeout),
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	}))
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	if err := errors.Join(addFeatures(mgr, o), addAdmission(mgr, o)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

// addFeatures is the list of everything that Torpor does. Each feature runs only while its API is served.
func addFeatures(mgr manager.Manager, o Options) error {
	hibernationMetrics, clusteringMetrics, backupMetrics := hibernation.NewMetrics(), clustering.NewMetrics(), backup.NewMetrics()
	appMetrics, processMetrics := app.NewMetrics(), process.NewMetrics()
	for _, m := range []prometheus.Collector{hibernationMetrics, clusteringMetrics, backupMetrics, appMetrics, processMetrics} {
		if err := metrics.Registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	features := []struct {
		name  string
		when  conditional.Condition
		setup conditional.SetupFunc
	}{
		{"hibernation", conditional.Served(hivev1.ClusterDeploymentKind()), hibernation.Controller{
			Actuators: actuators(o), Clock: clock.RealClock{}, Metrics: hibernationMetrics,
		}.SetupWithManager},
		{"clustering", conditional.Served(mocov1beta2.MySQLClusterKind()), clustering.Controller{
			HostOf: clustering.ServiceHost, Clock: clock.RealClock{}, Metrics: clusteringMetrics,
		}.SetupWithManager},
		{"provisioning", conditional.Served(mocov1beta2.MySQLClusterKind()), provisioning.Controller{Clock: clock.RealClock{}}.SetupWithManager},
		{"backup", conditional.Served(mocov1beta2.MySQLClusterKind(), mocov1beta2.BackupPolicyKind()), backup.Controller{
			Image: o.Image, Clock: clock.RealClock{}, Metrics: backupMetrics,
		}.SetupWithManager},
		{"restart", conditional.Served(korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind(),
			torporv1alpha1.CFDeploymentKind(), eiriniv1.LRPKind()), setupAll(
			app.Controller{Clock: clock.RealClock{}, Metrics: appMetrics}.SetupWithManager,
			process.Controller{Clock: clock.RealClock{}, Metrics: processMetrics}.SetupWithManager,
		)},
		{
			"spaces", conditional.Served(korifiv1alpha1.CFOrgKind(), korifiv1alpha1.CFSpaceKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind()),
			setupAll(orgspace.Controller{Clock: clock.RealClock{}}.SetupWithManager, build.Controller{Clock: clock.RealClock{}}.SetupWithManager),
		},
		{
			"deployments", conditional.Served(korifiv1alpha1.CFAppKind(), torporv1alpha1.CFDeploymentKind()),
			deployment.Controller{Clock: clock.RealClock{}}.SetupWithManager,
		},
		{"lrp", conditional.Served(eiriniv1.LRPKind()), lrp.Controller{Clock: clock.RealClock{}}.SetupWithManager},
	}
	for _, f := range features {
		group, err := conditional.Setup(mgr, f.when, f.setup, conditional.Name(f.name))
		if err != nil {
			return fmt.Errorf("set up %s: %w", f.name, err)
		}
		if err := mgr.AddReadyzCheck(f.name, group.Checker(conditional.RequireResolved)); err != nil {
			return fmt.Errorf("add readiness check of %s: %w", f.name, err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	return nil
}

// setupAll sets up controllers that start and stop together.
func setupAll(setups ...conditional.SetupFunc) conditional.SetupFunc {
	return func(mgr manager.Manager) error {
		for _, setup := range setups {
			if err := setup(mgr); err != nil {
				return err
			}
		}
		return nil
	}
}

// actuators is the list of clouds. The next cloud is one more line.
func actuators(o Options) map[string]actuator.Actuator {
	byPlatform := map[string]actuator.Actuator{}
	for _, a := range []actuator.Actuator{
		aws.New(aws.Options{Endpoint: o.AWSEndpoint}),
	} {
		byPlatform[a.Platform()] = a
	}
	return byPlatform
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, hivev1.AddToScheme, mocov1beta2.AddToScheme, korifiv1alpha1.AddToScheme, eiriniv1.AddToScheme,
		torporv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}
