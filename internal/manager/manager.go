// SPDX-License-Identifier: Apache-2.0

// Package manager wires Torpor's features together. No other package does.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/torpor-dev/torpor/internal/cf/imageregistry"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
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
	"github.com/torpor-dev/torpor/internal/cloud/containers"
	"github.com/torpor-dev/torpor/internal/cloud/gcp"
	"github.com/torpor-dev/torpor/internal/cloud/ibmcloud"
	"github.com/torpor-dev/torpor/internal/cloud/libvirt"
	"github.com/torpor-dev/torpor/internal/cloud/openstack"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	machinepoolcontroller "github.com/torpor-dev/torpor/internal/cluster/machinepool/controller"
	syncsetcontroller "github.com/torpor-dev/torpor/internal/cluster/syncset/controller"
	"github.com/torpor-dev/torpor/internal/httpguard"
	backupcontroller "github.com/torpor-dev/torpor/internal/mysql/backup/controller"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	provisioningcontroller "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/urgency"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	slumbercontroller "github.com/torpor-dev/torpor/internal/switches/slumber/controller"
	stopadaptercontroller "github.com/torpor-dev/torpor/internal/switches/stopadapter/controller"
)

const (
	defaultNamespace = "torpor-system"

	// noLimit disables the client's own rate limit. The API server has priority and fairness, and each controller has
	// few workers. With a limit here, a hundred apps that restart at once would delay each other.
	noLimit = -1
	// shutdownTimeout limits the wait for running passes; each of their effects is safe to interrupt.
	shutdownTimeout = 20 * time.Second
)

// DefaultRolloutsAtOnce keeps a rollout of a fleet moving, and limits the clusters that a faulty version affects at
// first.
const DefaultRolloutsAtOnce = 2

// DefaultInstanceStopDelay exceeds the time in which common gateways stop sending requests to an instance.
const DefaultInstanceStopDelay = 3 * time.Second

// DefaultExporterImage contains a mysqld_exporter that supports the flags in use.
const DefaultExporterImage = "quay.io/prometheus/mysqld-exporter:v0.16.0"

// Options are set by the command line.
type Options struct {
	// MetricsAddress and ProbeAddress are host:port to serve on; "0" disables them.
	MetricsAddress, ProbeAddress string
	// InsecureMetrics serves the metrics over unauthenticated HTTP, instead of HTTPS with RBAC authorization for
	// /metrics.
	InsecureMetrics bool
	// PprofAddress is host:port of the profiles, which are served without authorization; "0" and empty disable them.
	PprofAddress string
	// LeaderElection lets only one of several managers act; Namespace is the namespace of its Lease.
	LeaderElection bool
	Namespace      string
	// PodName is the name of the manager's own Pod, from which its Deployment follows; empty if unknown.
	PodName string
	// AWSEndpoint replaces the endpoint of EC2; empty means the endpoint of AWS.
	AWSEndpoint string
	// Controllers enables groups of controllers, in the form of SelectControllers; empty means all.
	Controllers []string
	// Webhook configures the admission webhooks.
	Webhook WebhookOptions
	// Page configures the web page of stoppable objects.
	Page PageOptions
	// AllowEndpoints lists the cloud endpoints that a Secret may name; empty allows all except link-local ones.
	AllowEndpoints []string
	// LibvirtSocket is the libvirt socket on the manager's machine that a Secret may select; empty allows none.
	LibvirtSocket string
	// AWSAssumeRoles lists the IAM roles that ClusterDeployments may name, as NAMESPACE=ARN; empty allows none.
	AWSAssumeRoles []string
	// AzureWorkloadIdentities lists the service principals that the manager may use with its own identity, as
	// NAMESPACE=TENANT_ID/CLIENT_ID.
	AzureWorkloadIdentities []string
	// ContainerEngineSockets lists the container engines on the manager's machine that ClusterDeployments may name, as
	// NAMESPACE=PATH; empty allows none.
	ContainerEngineSockets []string
	// AllowInsecureTargetClusters accepts kubeconfigs with plain HTTP, unverified certificates, a proxy or
	// impersonation.
	AllowInsecureTargetClusters bool
	// RolloutsAtOnce is the maximum number of MySQLClusters whose serving Pods are replaced at the same time; 0 means
	// no limit.
	RolloutsAtOnce int
	// RouteGateway is the Gateway for the routes of apps as NAMESPACE/NAME; if empty, routes become Ingresses of
	// RouteIngressClass.
	RouteGateway, RouteIngressClass string
	// ExporterImage contains mysqld_exporter, for MySQLClusters with collectors.
	ExporterImage string
	// FailoverWaits are the times for which the primary of a MySQLCluster may not answer.
	FailoverWaits clustering.FailoverWaits
	// IsolateSpaces creates a NetworkPolicy for each space that allows traffic only from the same space.
	IsolateSpaces bool
	// ImageRegistries lists the registries that are queried about images, in the form of imageregistry.ParsePolicy;
	// empty means none.
	ImageRegistries []string
	// TrustNodeImages runs images of apps that a node has cached without the registry's authorization.
	TrustNodeImages bool
	// InstanceStopDelay is how long an instance with a port keeps serving before it is terminated.
	InstanceStopDelay time.Duration
	// TakeOver lists the groups of controllers that also handle objects which another project writes.
	TakeOver []string
	guards   map[string]*reconcile.WriterGuard
	// WatchNamespaces lists the only namespaces whose objects are handled; empty means all.
	WatchNamespaces []string
	// Image is the image of Torpor, for Pods that copy its program into other containers; empty means that no such Pods
	// can be created.
	Image string
	// Log gets a line per change.
	Log *slog.Logger

	// endpoints, assumableRoles and engineSockets are the parsed AllowEndpoints, AWSAssumeRoles and
	// ContainerEngineSockets.
	endpoints      httpguard.Endpoints
	assumableRoles []aws.AssumableRole
	engineSockets  []containers.Socket
	// workloadIdentities are the parsed AzureWorkloadIdentities.
	workloadIdentities []azure.WorkloadIdentity
	// publisher is the parsed RouteGateway and RouteIngressClass.
	publisher route.Publisher
	// podCache holds the Pods of apps. Several features share it.
	podCache *podcache.Cache
	// outer is the manager that runs the controllers of StopAdapters.
	outer manager.Manager
	// ends orders the overdue ends of stops before other work, in all features.
	ends *urgency.OverdueEnds
	// registries are the parsed ImageRegistries.
	registries imageregistry.Policy
}

// Run runs the manager until ctx ends. The kinds that it handles need not be installed.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	logger := logr.FromSlogHandler(o.Log.Handler())
	log.SetLogger(logger)
	s, err := newScheme()
	if err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent = noLimit, buildinfo.UserAgent("torpor")
	mgr, err := manager.New(cfg, conditional.ManagerOptions(manager.Options{
		Scheme: s, Logger: logger,
		Metrics: metricsOptions(o), PprofBindAddress: o.PprofAddress,
		HealthProbeBindAddress: o.ProbeAddress,
		LeaderElection:         o.LeaderElection, LeaderElectionID: "torpor-manager", LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownTimeout),
		Cache:                         cache.Options{DefaultNamespaces: watchedNamespaces(o.WatchNamespaces), DefaultTransform: trimWrittenFields},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	}, conditional.MetricsPrefix("torpor_gate")))
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	ctx, admissionErr := addAdmission(ctx, mgr, o)
	if err := errors.Join(addFeatures(mgr, o), admissionErr, addPage(mgr, o)); err != nil {
		return err
	}
	if err := metrics.Registry.Register(buildinfo.NewMetric()); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	version := buildinfo.ReadVersion()
	o.Log.Info("torpor manager starts", "version", version.Version, "commit", version.Commit)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=torpor-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=torpor-system,resourceNames=torpor-manager,verbs=get;update
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,namespace=torpor-system,verbs=create;patch

// feature is a group of controllers that run only while their kinds are served.
type feature struct {
	name  string
	kinds featureKinds
	// metrics are registered once for the life of the process, even while the feature does not run.
	metrics []prometheus.Collector
	setup   conditional.SetupFunc
}

// listFeatures returns all features of Torpor, a row for each.
func listFeatures(o Options) []feature {
	now := clock.RealClock{}
	hibernationController := hibernationcontroller.Controller{
		Guard: o.guards["hibernation"], Actuators: actuators(o), Dialer: targetcluster.Dialer{AllowInsecure: o.AllowInsecureTargetClusters, Endpoints: o.endpoints},
		Clock: now, Metrics: hibernationcontroller.NewMetrics(), Ends: o.ends,
	}
	syncController := syncsetcontroller.Controller{Guard: o.guards["sync"], Dialer: hibernationController.Dialer, WatchNamespaces: o.WatchNamespaces, Clock: now, Metrics: syncsetcontroller.NewMetrics()}
	poolController := machinepoolcontroller.Controller{Guard: o.guards["machinepools"], Dialer: hibernationController.Dialer, Clock: now, Metrics: machinepoolcontroller.NewMetrics()}
	members, switchMetrics, adapterMetrics := &slumbercontroller.MemberKinds{}, fieldswitchcontroller.NewMetrics(), fieldswitchcontroller.NewMetrics()
	slumberController := slumbercontroller.Controller{Clock: now, Metrics: slumbercontroller.NewMetrics(), Members: members, Ends: o.ends}
	clusteringController := clusteringcontroller.Controller{Guard: o.guards["clustering"], HostOf: clusteringcontroller.ServiceHost, WatchNamespaces: o.WatchNamespaces, Clock: now, Metrics: clusteringcontroller.NewMetrics(), Ends: o.ends, Waits: o.FailoverWaits}
	backupController := backupcontroller.Controller{Guard: o.guards["backup"], Image: o.Image, WatchNamespaces: o.WatchNamespaces, Clock: now, Metrics: backupcontroller.NewMetrics()}
	appController, processController := appcontroller.Controller{Guard: o.guards["restart"], Clock: now, Metrics: appcontroller.NewMetrics(), Ends: o.ends}, processcontroller.Controller{Guard: o.guards["restart"], PodCache: o.podCache, Clock: now, Metrics: processcontroller.NewMetrics(), Ends: o.ends}
	return []feature{
		{"hibernation", needs(hivev1.ClusterDeploymentKind()), collectors(hibernationController.Metrics), hibernationController.SetupWithManager},
		{
			"sync", needs(hivev1.ClusterDeploymentKind(), hivev1.SyncSetKind(), hivev1.SelectorSyncSetKind(), hiveinternalv1alpha1.ClusterSyncKind()),
			collectors(syncController.Metrics), syncController.SetupWithManager,
		},
		{"machinepools", needs(hivev1.ClusterDeploymentKind(), hivev1.MachinePoolKind()), collectors(poolController.Metrics), poolController.SetupWithManager},
		{"slumber", needs(torporv1alpha1.SlumberKind()).with(slumbercontroller.ListOptionalKinds()), collectors(slumberController.Metrics), slumberController.SetupWithManager},
		{"workloads", workloadKinds(), collectors(switchMetrics), switchWorkloads(o, now, members, switchMetrics)},
		{"adapters", needs(torporv1alpha1.StopAdapterKind()), collectors(adapterMetrics), stopadaptercontroller.Controller{Clock: now, Manager: o.outer, Observer: members, Metrics: adapterMetrics, Ends: o.ends, WatchNamespaces: o.WatchNamespaces}.SetupWithManager},
		{"clustering", needs(mocov1beta2.MySQLClusterKind()), collectors(clusteringController.Metrics), clusteringController.SetupWithManager},
		{"provisioning", needs(mocov1beta2.MySQLClusterKind()), nil, provisioningcontroller.Controller{Guard: o.guards["provisioning"], WatchNamespaces: o.WatchNamespaces, Clock: now, Ends: o.ends, RolloutsAtOnce: o.RolloutsAtOnce, ExporterImage: o.ExporterImage}.SetupWithManager},
		{"backup", needs(mocov1beta2.MySQLClusterKind(), mocov1beta2.BackupPolicyKind()), collectors(backupController.Metrics), backupController.SetupWithManager},
		{
			"restart", needs(korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind(), torporv1alpha1.CFDeploymentKind(), eiriniv1.LRPKind()),
			collectors(appController.Metrics, processController.Metrics), setupAll(appController.SetupWithManager, processController.SetupWithManager),
		},
		{
			"spaces", needs(korifiv1alpha1.CFOrgKind(), korifiv1alpha1.CFSpaceKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind()),
			nil, setupAll(orgspacecontroller.Controller{Guard: o.guards["spaces"], Clock: now, IsolateSpaces: o.IsolateSpaces}.SetupWithManager, buildcontroller.Controller{Guard: o.guards["spaces"], Clock: now, Registries: o.registries}.SetupWithManager),
		},
		{"deployments", needs(korifiv1alpha1.CFAppKind(), torporv1alpha1.CFDeploymentKind()), nil, deploymentcontroller.Controller{Guard: o.guards["restart"], Clock: now}.SetupWithManager},
		{"routes", routeKinds(o.publisher), nil, routecontroller.Controller{Guard: o.guards["routes"], Publisher: o.publisher, WatchNamespaces: o.WatchNamespaces, Clock: now}.SetupWithManager},
		{
			"tasks", needs(korifiv1alpha1.CFTaskKind(), korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind()),
			nil, taskcontroller.Controller{Guard: o.guards["tasks"], Pods: o.podOptions(), WatchNamespaces: o.WatchNamespaces, Clock: now}.SetupWithManager,
		},
		{"lrp", needs(eiriniv1.LRPKind()), nil, lrpcontroller.Controller{Guard: o.guards["lrp"], Pods: o.podOptions(), PodCache: o.podCache, Clock: now}.SetupWithManager},
	}
}

// workloadKinds returns the workload kinds of Kubernetes that can be stopped.
func workloadKinds() (all featureKinds) {
	for _, kind := range kinds.ListWorkloads() {
		all.required = append(all.required, kind.GVK())
	}
	return all
}

// switchWorkloads sets up a controller for each workload kind.
func switchWorkloads(o Options, now clock.PassiveClock, members *slumbercontroller.MemberKinds, metrics *fieldswitchcontroller.Metrics) conditional.SetupFunc {
	var setups []conditional.SetupFunc
	for _, kind := range kinds.ListWorkloads() {
		setups = append(setups, fieldswitchcontroller.Controller{Clock: now, Kind: kind, Observer: members, Metrics: metrics, Ends: o.ends}.SetupWithManager)
	}
	return setupAll(setups...)
}

// podOptions returns the options for the Pods of all instances.
func (o *Options) podOptions() lrp.PodOptions {
	options := lrp.PodOptions{PullPolicy: corev1.PullAlways, StopDelay: o.InstanceStopDelay}
	if o.TrustNodeImages {
		options.PullPolicy = corev1.PullIfNotPresent
	}
	return options
}

// routeKinds returns the kinds of the feature, including the kind that routes become if clusters may lack it.
func routeKinds(publisher route.Publisher) featureKinds {
	all := needs(korifiv1alpha1.CFRouteKind(), korifiv1alpha1.CFDomainKind(), korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind())
	if publisher.UsesGateway() {
		all.required = append(all.required, schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Kind: "HTTPRoute"})
	}
	return all
}

// watchedNamespaces returns the namespaces of the cache; nil means all.
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

// trimWrittenFields removes the lists of written fields from the managedFields of apps' objects. Only the writer and
// the time are read. There are tens of thousands of such objects, and the lists are a third of the memory of each.
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
func addFeatures(mgr manager.Manager, o Options) error {
	enabled, err := SelectControllers(o.Controllers)
	if err != nil {
		return err
	}
	claim, err := addClaim(mgr, o, enabled)
	if err != nil {
		return err
	}
	if err := o.parse(mgr.GetAPIReader()); err != nil {
		return err
	}
	o.outer, o.ends = mgr, urgency.NewOverdueEnds(clock.RealClock{})
	if err := mgr.Add(o.ends); err != nil {
		return fmt.Errorf("add the order of overdue ends: %w", err)
	}
	if o.podCache, err = podcache.New(mgr, o.WatchNamespaces); err != nil {
		return err
	}
	for _, f := range listFeatures(o) {
		rights, err := listRights(f.name, o.WatchNamespaces)
		if err != nil {
			return err
		}
		when := conditional.All(append(claim, conditional.Served(f.kinds.required...), conditional.Allowed(rightsInterval, rights...))...)
		if !slices.Contains(enabled, f.name) {
			when, f.metrics, f.kinds.optional = conditional.Disabled(), nil, nil
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
		// A feature is ready once it is known whether its kinds are served, even if they are not.
		if err := mgr.AddReadyzCheck(f.name, group.Checker(conditional.RequireResolved)); err != nil {
			return fmt.Errorf("add readiness check of %s: %w", f.name, err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	return nil
}

// parse parses the options that the command line gives as text.
func (o *Options) parse(reader client.Reader) (err error) {
	if o.endpoints, err = httpguard.ParseEndpoints(o.AllowEndpoints); err != nil {
		return fmt.Errorf("--allow-endpoints: %w", err)
	}
	if o.assumableRoles, err = aws.ParseAssumableRoles(o.AWSAssumeRoles); err != nil {
		return fmt.Errorf("--aws-assume-roles: %w", err)
	}
	if o.workloadIdentities, err = azure.ParseWorkloadIdentities(o.AzureWorkloadIdentities); err != nil {
		return fmt.Errorf("--azure-workload-identities: %w", err)
	}
	if o.engineSockets, err = containers.ParseSockets(o.ContainerEngineSockets); err != nil {
		return fmt.Errorf("--container-engine-sockets: %w", err)
	}
	if o.registries, err = imageregistry.ParsePolicy(o.ImageRegistries); err != nil {
		return fmt.Errorf("--image-registries: %w", err)
	}
	if o.TrustNodeImages {
		// Images that were loaded into nodes have a name and no digest, and may not exist in a registry.
		o.registries = imageregistry.Policy{}
	}
	if o.publisher, err = route.ParsePublisher(o.RouteGateway, o.RouteIngressClass); err != nil {
		return err
	}
	if o.guards, err = newWriterGuards(reader, o.TakeOver); err != nil {
		return err
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

// listPlatforms returns the actuators of all platforms, in the order of their names. A new platform is a new line here.
func listPlatforms(o Options) []actuator.Describer {
	return []actuator.Describer{
		aws.New(aws.Options{Endpoint: o.AWSEndpoint, Endpoints: o.endpoints, AssumableRoles: o.assumableRoles}),
		azure.New(azure.Options{Endpoints: o.endpoints, WorkloadIdentities: o.workloadIdentities}),
		baremetal.New(baremetal.Options{Endpoints: o.endpoints}),
		containers.New(containers.Options{Endpoints: o.endpoints, Sockets: o.engineSockets}),
		gcp.New(cloudrest.CloudOptions{Endpoints: o.endpoints}),
		ibmcloud.New(cloudrest.CloudOptions{Endpoints: o.endpoints}),
		libvirt.New(libvirt.Options{Endpoints: o.endpoints, Socket: o.LibvirtSocket}),
		openstack.New(openstack.Options{Endpoints: o.endpoints}),
	}
}

func actuators(o Options) map[string]actuator.Actuator {
	byPlatform := map[string]actuator.Actuator{}
	for _, a := range listPlatforms(o) {
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
