// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"log/slog"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/kpack"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
)

// DefaultRolloutsAtOnce is the default of Options.RolloutsAtOnce. It limits how many clusters a faulty version
// affects at first, without letting one cluster block a whole fleet.
const DefaultRolloutsAtOnce = 2

// DefaultInstanceStopDelay is longer than common gateways take to stop sending requests to an instance.
const DefaultInstanceStopDelay = 3 * time.Second

// DefaultExporterImage contains a mysqld_exporter that supports the flags in use.
const DefaultExporterImage = "quay.io/prometheus/mysqld-exporter:v0.16.0"

// These are the defaults of KpackOptions.
const (
	DefaultKpackBuilder        = kpack.DefaultBuilder
	DefaultKpackServiceAccount = kpack.DefaultServiceAccount
)

// Options are the flags of the command line, as typed.
type Options struct {
	// MetricsAddress and ProbeAddress are host:port to serve on; "0" disables them.
	MetricsAddress, ProbeAddress string
	// InsecureMetrics serves the metrics over unauthenticated HTTP, instead of HTTPS with RBAC authorization for
	// /metrics.
	InsecureMetrics bool
	// PprofAddress is host:port of the profiles, which are served without authorization; "0" and empty disable them.
	PprofAddress string
	// LeaderElection lets one of several managers lead each part of the controllers, by a Lease. Namespace is the
	// namespace of the installation and of these Leases.
	LeaderElection bool
	Namespace      string
	// PodName is the name of the manager's own Pod, from which the name of its Deployment is derived. It is empty if
	// unknown.
	PodName string
	// AWSEndpoint replaces the endpoints of EC2, Auto Scaling and EKS. If it is empty, AWS's own endpoints are used.
	AWSEndpoint string
	// Controllers lists the enabled groups of controllers, in the format of SelectControllers. An empty list means all.
	Controllers []string
	// RequireHibernationPossible rejects hibernations of clusters whose condition HibernationPossible is False.
	RequireHibernationPossible bool
	// HiveReasons makes conditions of ClusterDeployments use the reasons of Hive.
	HiveReasons bool
	// Webhook configures the admission webhooks.
	Webhook WebhookOptions
	// Page configures the web page of stoppable objects.
	Page PageOptions
	// AllowEndpoints lists the cloud endpoints that users may choose. An empty list allows all except link-local
	// addresses and metadata services.
	AllowEndpoints []string
	// LibvirtSocket is the libvirt socket on the manager's machine that a Secret may select. An empty value allows
	// none.
	LibvirtSocket string
	// AWSAssumeRoles lists the IAM roles that ClusterDeployments may name, as NAMESPACE=ARN. An empty list allows none.
	AWSAssumeRoles []string
	// AzureWorkloadIdentities lists the service principals that the manager may use with its own identity, as
	// NAMESPACE=TENANT_ID/CLIENT_ID.
	AzureWorkloadIdentities []string
	// ContainerEngineSockets lists the container engines on the manager's machine that ClusterDeployments may name, as
	// NAMESPACE=PATH. An empty list allows none.
	ContainerEngineSockets []string
	// AllowTargetProxies lists the hosts of the proxies that kubeconfigs of clusters may name. An empty list allows
	// none.
	AllowTargetProxies []string
	// AllowInsecureTargetClusters accepts kubeconfigs with plain HTTP, unverified certificates, any proxy, or
	// impersonation.
	AllowInsecureTargetClusters bool
	// RolloutsAtOnce is the maximum number of MySQLClusters whose serving Pods are replaced at the same time. 0 means
	// no limit.
	RolloutsAtOnce int
	// RouteGateway is the Gateway for the routes of apps as NAMESPACE/NAME; if empty, routes become Ingresses of
	// RouteIngressClass.
	RouteGateway, RouteIngressClass string
	// ExporterImage contains mysqld_exporter, for MySQLClusters with collectors.
	ExporterImage string
	// FailoverWaits are how long the primary of a MySQLCluster may fail to answer before a failover.
	FailoverWaits clustering.FailoverWaits
	// IsolateSpaces creates a NetworkPolicy in each space. The policy allows traffic only from the same space.
	IsolateSpaces bool
	// Kpack configures builds of source code by kpack.
	Kpack KpackOptions
	// ImageRegistries lists the registries that are queried about images, in the format of imagemetadata.ParsePolicy.
	// An empty list means that no registry is queried.
	ImageRegistries []string
	// TrustNodeImages runs an image of an app from the cache of a node, without authorization by the registry.
	TrustNodeImages bool
	// InstanceStopDelay is how long an instance with a port keeps serving after it has been removed from its
	// Services, if other instances serve in its place.
	InstanceStopDelay time.Duration
	// TakeOver lists the groups of controllers that also handle objects that another project writes.
	TakeOver []string
	// WatchNamespaces lists the only namespaces whose objects are handled. An empty list means all.
	WatchNamespaces []string
	// Image is the image of Torpor, for Pods that copy its binary into other containers; if empty, no such Pods can
	// be created.
	Image string
	// Log receives a line for each change.
	Log *slog.Logger
}

// WebhookOptions configure the admission webhooks: for apps, and for the requesters of stops.
type WebhookOptions struct {
	// Address is host:port; "0" and empty disable the webhooks.
	Address string
	// CertFolder contains tls.crt and tls.key. If it is empty, the manager issues a certificate, and stores the CA
	// for all replicas in a Secret.
	CertFolder string
	// LeavesBundles leaves the caBundle of the webhook configurations to another controller.
	LeavesBundles bool
}

// KpackOptions configure builds of source code by kpack, in the format of kpack.ParseSettings.
type KpackOptions struct {
	// Repository is the prefix of the repositories of built images. An empty value disables builds by kpack.
	Repository string
	// Builder is KIND/NAME of the builder.
	Builder string
	// ServiceAccount and PullSecret are names in the namespace of each space.
	ServiceAccount, PullSecret string
}

// PageOptions configure the web page of stoppable objects.
type PageOptions struct {
	// Address is host:port; "0" and empty disable the page.
	Address string
	// CertFolder contains tls.crt and tls.key. If it is empty, Address must be a loopback address.
	CertFolder string
	// PricesFolder contains the prices of the savings.
	PricesFolder string
}
