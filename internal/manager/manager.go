// SPDX-License-Identifier: Apache-2.0

// Package manager wires Torpor's features together. No other package does this.
package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/torpor-dev/torpor/actuator"
	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	appcontroller "github.com/torpor-dev/torpor/internal/cf/app/controller"
	buildcontroller "github.com/torpor-dev/torpor/internal/cf/build/controller"
	deploymentcontroller "github.com/torpor-dev/torpor/internal/cf/deployment/controller"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
	kpackcontroller "github.com/torpor-dev/torpor/internal/cf/kpack/controller"
	lrpcontroller "github.com/torpor-dev/torpor/internal/cf/lrp/controller"
	orgspacecontroller "github.com/torpor-dev/torpor/internal/cf/orgspace/controller"
	"github.com/torpor-dev/torpor/internal/cf/podcache"
	processcontroller "github.com/torpor-dev/torpor/internal/cf/process/controller"
	"github.com/torpor-dev/torpor/internal/cf/route"
	routecontroller "github.com/torpor-dev/torpor/internal/cf/route/controller"
	taskcontroller "github.com/torpor-dev/torpor/internal/cf/task/controller"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	"github.com/torpor-dev/torpor/internal/cloud/azure"
	"github.com/torpor-dev/torpor/internal/cloud/baremetal"
	"github.com/torpor-dev/torpor/internal/cloud/docker"
	"github.com/torpor-dev/torpor/internal/cloud/gcp"
	"github.com/torpor-dev/torpor/internal/cloud/ibmcloud"
	"github.com/torpor-dev/torpor/internal/cloud/libvirt"
	"github.com/torpor-dev/torpor/internal/cloud/openstack"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	machinepoolcontroller "github.com/torpor-dev/torpor/internal/cluster/machinepool/controller"
	syncsetcontroller "github.com/torpor-dev/torpor/internal/cluster/syncset/controller"
	backupcontroller "github.com/torpor-dev/torpor/internal/mysql/backup/controller"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	provisioningcontroller "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	slumbercontroller "github.com/torpor-dev/torpor/internal/switches/slumber/controller"
	stopadaptercontroller "github.com/torpor-dev/torpor/internal/switches/stopadapter/controller"
)

const (
	defaultNamespace = "torpor-system"

	// noLimit disables the client's own rate limit. The API server has priority and fairness, and each controller
	// has few workers. With a limit here, a hundred apps that restart at the same time would delay each other.
	noLimit = -1
	// syncTimeout limits the first list of a kind. A busy API server needs minutes for hundreds of thousands of
	// objects, and a group of controllers that exceeds the limit lists all of them again. controller-runtime's default,
	// two minutes, is too short: https://github.com/kubernetes-sigs/controller-runtime/issues/3466
	syncTimeout = 30 * time.Minute
	// shutdownTimeout limits the wait for running passes, which can safely be interrupted.
	shutdownTimeout = 20 * time.Second
)

// Run runs the manager until ctx ends. The kinds that it handles need not be installed.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	logger := logr.FromSlogHandler(o.Log.Handler())
	log.SetLogger(logger)
	s, err := newScheme()
	if err != nil {
		return err
	}
	c, err := o.Parse()
	if err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent = noLimit, buildinfo.UserAgent("torpor")
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return plainWatches{base} })
	mgr, err := conditional.NewManager(cfg, manager.Options{
		Scheme: s, Logger: logger,
		Metrics: metricsOptions(o), PprofBindAddress: o.PprofAddress,
		HealthProbeBindAddress: o.ProbeAddress,
		// Each part of the controllers has its own Lease for leader election.
		LeaderElection:          false,
		GracefulShutdownTimeout: new(shutdownTimeout),
		Controller:              config.Controller{CacheSyncTimeout: syncTimeout},
		Cache:                   cache.Options{DefaultNamespaces: watchedNamespaces(o.WatchNamespaces), DefaultTransform: trimWrittenFields},
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	}, conditional.MetricsPrefix("torpor_gate"))
	if err != nil {
		return fmt.Errorf("create manager: %w", err)
	}
	ctx, admissionErr := addAdmission(ctx, mgr, c.webhook)
	leads, electionErr := addElection(mgr, o, c.listParts())
	if err := errors.Join(electionErr, admissionErr, addPage(mgr, o)); err != nil {
		return err
	}
	if err := addFeatures(mgr, leads, c); err != nil {
		return err
	}
	if err := metrics.Registry.Register(buildinfo.NewMetric()); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	version := buildinfo.ReadVersion()
	o.Log.Info("torpor manager starts", "version", version.Version, "commit", version.Commit)
	if err := leads.run(ctx, mgr.Start); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=torpor-system,verbs=get;list;create;update;patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,namespace=torpor-system,verbs=create;patch

// feature is a group of controllers that run only while their kinds are served.
type feature struct {
	name  string
	kinds featureKinds
	// metrics of an enabled feature are registered once, when the process starts, and remain registered while its
	// controllers do not run. Those of a disabled feature are not registered.
	metrics []prometheus.Collector
	setup   conditional.SetupFunc
}

// sharedParts holds the objects that several features use.
type sharedParts struct {
	guards map[string]*reconcile.WriterGuard
	// podCache holds the Pods of apps.
	podCache *podcache.Cache
	// outer is the manager of the process, to which the controllers of StopAdapters are added.
	outer manager.Manager
	// ends gives overdue ends of stops priority over other work.
	ends *priority.OverdueEnds
}

// listFeatures returns all features except kpack.
func listFeatures(c Config, s sharedParts) []feature {
	now := clock.RealClock{}
	hibernationController := hibernationcontroller.Controller{
		Guard: s.guards["hibernation"], Actuators: actuators(c.clouds), Dialer: c.dialer,
		Clock: now, Metrics: hibernationcontroller.NewMetrics(), Ends: s.ends, RequiresPossible: c.requiresPossible, UsesHiveReasons: c.hiveReasons,
	}
	syncController := syncsetcontroller.Controller{Guard: s.guards["sync"], Dialer: c.dialer, WatchNamespaces: c.namespaces, Clock: now, Metrics: syncsetcontroller.NewMetrics()}
	poolController := machinepoolcontroller.Controller{Guard: s.guards["machinepools"], Dialer: c.dialer, Clock: now, Metrics: machinepoolcontroller.NewMetrics()}
	members, switchMetrics, adapterMetrics := &slumbercontroller.MemberKinds{}, fieldswitchcontroller.NewMetrics(), fieldswitchcontroller.NewMetrics()
	slumberController := slumbercontroller.Controller{Clock: now, Metrics: slumbercontroller.NewMetrics(), Members: members, Ends: s.ends}
	clusteringController := clusteringcontroller.Controller{Guard: s.guards["clustering"], HostOf: clusteringcontroller.ServiceHost, WatchNamespaces: c.namespaces, Clock: now, Metrics: clusteringcontroller.NewMetrics(), Ends: s.ends, Waits: c.mysql.waits}
	provisioningController := provisioningcontroller.Controller{
		Guard: s.guards["provisioning"], WatchNamespaces: c.namespaces, Clock: now, Metrics: provisioningcontroller.NewMetrics(), Ends: s.ends,
		RolloutsAtOnce: c.mysql.rolloutsAtOnce, ExporterImage: c.mysql.exporterImage,
	}
	backupController := backupcontroller.Controller{Guard: s.guards["backup"], Image: c.mysql.image, WatchNamespaces: c.namespaces, Clock: now, Metrics: backupcontroller.NewMetrics()}
	appController, processController := appcontroller.Controller{Guard: s.guards["restart"], Clock: now, Metrics: appcontroller.NewMetrics(), Ends: s.ends}, processcontroller.Controller{Guard: s.guards["restart"], PodCache: s.podCache, Clock: now, Metrics: processcontroller.NewMetrics(), Ends: s.ends}
	return []feature{
		{"hibernation", needs(hivev1.ClusterDeploymentKind()), collectors(hibernationController.Metrics), hibernationController.SetupWithManager},
		{
			"sync", needs(hivev1.ClusterDeploymentKind(), hivev1.SyncSetKind(), hivev1.SelectorSyncSetKind(), hiveinternalv1alpha1.ClusterSyncKind()),
			collectors(syncController.Metrics), syncController.SetupWithManager,
		},
		{"machinepools", needs(hivev1.ClusterDeploymentKind(), hivev1.MachinePoolKind()), collectors(poolController.Metrics), poolController.SetupWithManager},
		{
			"slumber", slumberKinds(c.namespaces), collectors(slumberController.Metrics), setUpSlumbers(slumberController, c.namespaces),
		},
		{"workloads", workloadKinds(), collectors(switchMetrics), switchWorkloads(fieldswitchcontroller.Controller{Clock: now, Observer: members, Metrics: switchMetrics, Ends: s.ends, Own: c.deployment})},
		{"adapters", needs(torporv1alpha1.StopAdapterKind()), collectors(adapterMetrics), stopadaptercontroller.Controller{Clock: now, Manager: s.outer, Observer: members, Metrics: adapterMetrics, Ends: s.ends, WatchNamespaces: c.namespaces}.SetupWithManager},
		{"clustering", needs(mocov1beta2.MySQLClusterKind()), collectors(clusteringController.Metrics), clusteringController.SetupWithManager},
		{"provisioning", needs(mocov1beta2.MySQLClusterKind()), collectors(provisioningController.Metrics), provisioningController.SetupWithManager},
		{"backup", needs(mocov1beta2.MySQLClusterKind(), mocov1beta2.BackupPolicyKind()), collectors(backupController.Metrics), backupController.SetupWithManager},
		{
			"restart", needs(korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind(), torporv1alpha1.CFDeploymentKind(), eiriniv1.LRPKind()),
			collectors(appController.Metrics, processController.Metrics), setupAll(appController.SetupWithManager, processController.SetupWithManager),
		},
		{
			"spaces", needs(korifiv1alpha1.CFOrgKind(), korifiv1alpha1.CFSpaceKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind()),
			nil, setupAll(orgspacecontroller.Controller{Guard: s.guards["spaces"], Clock: now, IsolateSpaces: c.apps.isolateSpaces}.SetupWithManager, buildcontroller.Controller{Guard: s.guards["spaces"], Clock: now, Registries: c.apps.registries, UsesKpack: c.apps.kpack.IsEnabled()}.SetupWithManager),
		},
		{"deployments", needs(korifiv1alpha1.CFAppKind(), torporv1alpha1.CFDeploymentKind()), nil, deploymentcontroller.Controller{Guard: s.guards["restart"], Clock: now}.SetupWithManager},
		{"routes", routeKinds(c.apps.publisher), nil, routecontroller.Controller{Guard: s.guards["routes"], Publisher: c.apps.publisher, WatchNamespaces: c.namespaces, Clock: now}.SetupWithManager},
		{
			"tasks", needs(korifiv1alpha1.CFTaskKind(), korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind()),
			nil, taskcontroller.Controller{Guard: s.guards["tasks"], Pods: c.apps.pods, WatchNamespaces: c.namespaces, Clock: now}.SetupWithManager,
		},
		{"lrp", needs(eiriniv1.LRPKind()), nil, lrpcontroller.Controller{Guard: s.guards["lrp"], Pods: c.apps.pods, PodCache: s.podCache, Clock: now}.SetupWithManager},
	}
}

// kpackFeatureName is the name of the group that --kpack-repository enables.
const kpackFeatureName = "kpack"

// kpackFeature returns the group that lets kpack build source code. A flag enables it instead of --controllers,
// because it needs permissions for the API of another project.
func kpackFeature(c Config, s sharedParts) feature {
	controller := kpackcontroller.Controller{Guard: s.guards["spaces"], Clock: clock.RealClock{}, Settings: c.apps.kpack}
	return feature{kpackFeatureName, needs(korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind(), kpack.ImageKind()), nil, controller.SetupWithManager}
}

// workloadKinds returns the workload kinds of Kubernetes that can be stopped.
func workloadKinds() (all featureKinds) {
	for _, kind := range kinds.ListWorkloads() {
		all.required = append(all.required, kind.GVK())
	}
	return all
}

// slumberKinds returns the kinds of schedules. A manager of only some namespaces does not handle ClusterSlumbers,
// which are cluster-scoped.
func slumberKinds(namespaces []string) featureKinds {
	kinds := needs(torporv1alpha1.SlumberKind())
	if len(namespaces) == 0 {
		kinds = needs(torporv1alpha1.SlumberKind(), torporv1alpha1.ClusterSlumberKind())
	}
	return kinds.with(slumbercontroller.ListOptionalKinds())
}

func setUpSlumbers(c slumbercontroller.Controller, namespaces []string) conditional.SetupFunc {
	if len(namespaces) > 0 {
		return c.SetupWithManager
	}
	return setupAll(c.SetupWithManager, slumbercontroller.ClusterController{Controller: c}.SetupWithManager)
}

// switchWorkloads sets up a controller for each workload kind.
func switchWorkloads(c fieldswitchcontroller.Controller) conditional.SetupFunc {
	var setups []conditional.SetupFunc
	for _, kind := range kinds.ListWorkloads() {
		c.Kind = kind
		setups = append(setups, c.SetupWithManager)
	}
	return setupAll(setups...)
}

// routeKinds returns the kinds of the feature routes. They include HTTPRoute if a Gateway publishes the routes.
func routeKinds(publisher route.Publisher) featureKinds {
	all := needs(korifiv1alpha1.CFRouteKind(), korifiv1alpha1.CFDomainKind(), korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind())
	if publisher.UsesGateway() {
		all.required = append(all.required, schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Kind: "HTTPRoute"})
	}
	return all
}

// watchedNamespaces returns the namespaces of the cache. Nil means all.
func watchedNamespaces(list []string) map[string]cache.Config {
	if len(list) == 0 {
		return nil
	}
	watched := map[string]cache.Config{}
	for _, namespace := range list {
		watched[namespace] = cache.Config{}
	}
	return watched
}

// trimWrittenFields removes the lists of fields from the managedFields of the objects of apps. Torpor uses only the
// manager and the time of each entry. There are tens of thousands of these objects, and the lists take a third of their
// memory. trimWrittenFields also trims metadata-only objects.
func trimWrittenFields(o any) (any, error) {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		fieldswitchcontroller.TrimMetadata(o)
		reconcile.ShareTexts(o)
	case *korifiv1alpha1.CFApp, *korifiv1alpha1.CFProcess, *korifiv1alpha1.CFBuild, *korifiv1alpha1.CFPackage, *torporv1alpha1.CFDeployment, *eiriniv1.LRP:
		if object, ok := o.(client.Object); ok {
			entries := object.GetManagedFields()
			for i := range entries {
				entries[i].FieldsV1 = nil
			}
			reconcile.ShareTexts(object)
		}
	}
	return o, nil
}

// featureKinds are the required and the optional kinds of a feature.
type featureKinds struct {
	required []schema.GroupVersionKind
	optional []client.Object
}

func needs(list ...schema.GroupVersionKind) featureKinds { return featureKinds{required: list} }

func (k featureKinds) with(optional []client.Object) featureKinds {
	k.optional = optional
	return k
}

func (k featureKinds) groupOptions(name string) []conditional.Option {
	options := []conditional.Option{conditional.Name(name)}
	if len(k.optional) > 0 {
		options = append(options, conditional.Optional(k.optional...))
	}
	return options
}

func collectors(list ...prometheus.Collector) []prometheus.Collector { return list }

// addFeatures adds the features with their metrics and readiness checks.
func addFeatures(mgr manager.Manager, leads *leadership, c Config) error {
	s := sharedParts{guards: newWriterGuards(mgr.GetAPIReader(), c.takeOver), outer: mgr, ends: priority.NewOverdueEnds(clock.RealClock{})}
	if err := mgr.Add(s.ends); err != nil {
		return fmt.Errorf("add the order of overdue ends: %w", err)
	}
	var err error
	if s.podCache, err = podcache.New(mgr, c.namespaces); err != nil {
		return err
	}
	features := listFeatures(c, s)
	if c.apps.kpack.IsEnabled() {
		features = append(features, kpackFeature(c, s))
	}
	for _, f := range features {
		rights, err := listRights(f.name, c.namespaces)
		if err != nil {
			return err
		}
		when := conditional.Disabled()
		if slices.Contains(c.enabled, f.name) {
			when = conditional.All(append(leads.conditionsOf(partOf(f.name)), conditional.Served(f.kinds.required...), conditional.Allowed(rightsInterval, rights...))...)
		} else {
			f.metrics, f.kinds.optional = nil, nil
		}
		for _, m := range f.metrics {
			if err := metrics.Registry.Register(m); err != nil {
				return fmt.Errorf("register metrics: %w", err)
			}
		}
		group, err := conditional.Setup(mgr, when, f.setup, f.kinds.groupOptions(f.name)...)
		if err != nil {
			return fmt.Errorf("set up %s: %w", f.name, err)
		}
		// A feature is ready as soon as its condition is known, even if the condition is False.
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

// listPlatforms returns the actuators of all platforms, in the order of their names. To add a platform, add a line
// here.
func listPlatforms(c cloudConfig) []actuator.Describer {
	return []actuator.Describer{
		aws.New(aws.Options{Endpoint: c.awsEndpoint, Endpoints: c.endpoints, AssumableRoles: c.assumableRoles}),
		azure.New(azure.Options{Endpoints: c.endpoints, WorkloadIdentities: c.workloadIdentities}),
		baremetal.New(baremetal.Options{Endpoints: c.endpoints}),
		docker.New(docker.Options{Endpoints: c.endpoints, Sockets: c.engineSockets}),
		gcp.New(cloudrest.CloudOptions{Endpoints: c.endpoints}),
		ibmcloud.New(cloudrest.CloudOptions{Endpoints: c.endpoints}),
		libvirt.New(libvirt.Options{Endpoints: c.endpoints, Socket: c.libvirtSocket}),
		openstack.New(openstack.Options{Endpoints: c.endpoints}),
	}
}

func actuators(c cloudConfig) map[string]actuator.Actuator {
	byPlatform := map[string]actuator.Actuator{}
	for _, a := range listPlatforms(c) {
		byPlatform[a.Platform()] = a
	}
	return byPlatform
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, hivev1.AddToScheme, hiveinternalv1alpha1.AddToScheme, mocov1beta2.AddToScheme, korifiv1alpha1.AddToScheme, eiriniv1.AddToScheme,
		torporv1alpha1.AddToScheme, gatewayv1.Install,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}
