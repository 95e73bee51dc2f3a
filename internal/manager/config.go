// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cf/imagemetadata"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/route"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	"github.com/torpor-dev/torpor/internal/cloud/azure"
	"github.com/torpor-dev/torpor/internal/cloud/docker"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/httpguard"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
)

// Config holds the options that features receive, parsed and checked.
type Config struct {
	// enabled lists the groups of controllers that run. takeOver lists the groups that also handle objects of another
	// writer.
	enabled, takeOver []string
	// namespaces are the only namespaces whose objects are handled. An empty list means all.
	namespaces []string
	// deployment is the Deployment of this manager; without a name if it is unknown.
	deployment client.ObjectKey
	// requiresPossible rejects hibernations of clusters whose condition HibernationPossible is False.
	requiresPossible bool
	// hiveReasons makes conditions of ClusterDeployments use the reasons of Hive.
	hiveReasons bool
	// webhook is nil if no webhook is served.
	webhook *webhookConfig
	clouds  cloudConfig
	// dialer connects to the clusters of ClusterDeployments.
	dialer targetcluster.Dialer
	mysql  mysqlConfig
	apps   appConfig
}

type webhookConfig struct {
	host string
	port int
	// namespace is the namespace of the webhooks' Service.
	namespace     string
	certFolder    string
	leavesBundles bool
	// servesApps is true if the controllers of apps are enabled. The webhooks for apps must then be installed.
	servesApps bool
}

type cloudConfig struct {
	endpoints          httpguard.Endpoints
	awsEndpoint        string
	assumableRoles     []aws.AssumableRole
	workloadIdentities []azure.WorkloadIdentity
	engineSockets      []docker.Socket
	libvirtSocket      string
}

type mysqlConfig struct {
	waits                clustering.FailoverWaits
	rolloutsAtOnce       int
	image, exporterImage string
}

type appConfig struct {
	// pods are the options for the Pods of all instances and tasks.
	pods          lrp.PodOptions
	publisher     route.Publisher
	registries    imagemetadata.Policy
	isolateSpaces bool
	kpack         kpack.Settings
}

// Parse returns the configuration of the features, or the joined errors of all flags.
func (o Options) Parse() (Config, error) {
	c := Config{
		deployment: client.ObjectKey{Namespace: cmp.Or(o.Namespace, defaultNamespace), Name: lease.FindDeployment(o.PodName)},
		takeOver:   o.TakeOver, namespaces: o.WatchNamespaces, requiresPossible: o.RequireHibernationPossible, hiveReasons: o.HiveReasons,
		mysql: mysqlConfig{waits: o.FailoverWaits, rolloutsAtOnce: o.RolloutsAtOnce, image: o.Image, exporterImage: o.ExporterImage},
	}
	var errs [5]error
	c.enabled, errs[0] = SelectControllers(o.Controllers)
	c.webhook, errs[1] = o.parseWebhook()
	if c.webhook != nil {
		c.webhook.servesApps = slices.Contains(c.enabled, "restart")
	}
	c.clouds, errs[2] = o.parseClouds()
	if c.apps, errs[3] = o.parseApps(); c.apps.kpack.IsEnabled() {
		c.enabled = append(c.enabled, kpackFeatureName)
	}
	c.dialer = targetcluster.Dialer{AllowInsecure: o.AllowInsecureTargetClusters, Endpoints: c.clouds.endpoints}
	errs[4] = parseFlag("--allow-target-proxies", &c.dialer.Proxies, httpguard.ParseEndpoints, o.AllowTargetProxies)
	return c, errors.Join(append(errs[:], checkTakeOver(o.TakeOver))...)
}

func (o Options) parseWebhook() (*webhookConfig, error) {
	if o.Webhook.Address == "" || o.Webhook.Address == "0" {
		return nil, nil
	}
	host, text, err := net.SplitHostPort(o.Webhook.Address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-address: expected host:port, found %q: %w", o.Webhook.Address, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("--webhook-address: expected a number after the colon, found %q: %w", text, err)
	}
	return &webhookConfig{
		host: host, port: port, namespace: cmp.Or(o.Namespace, defaultNamespace), certFolder: o.Webhook.CertFolder, leavesBundles: o.Webhook.LeavesBundles,
	}, nil
}

func (o Options) parseClouds() (cloudConfig, error) {
	c := cloudConfig{awsEndpoint: o.AWSEndpoint, libvirtSocket: o.LibvirtSocket}
	err := errors.Join(
		parseFlag("--allow-endpoints", &c.endpoints, httpguard.ParseEndpoints, o.AllowEndpoints),
		parseFlag("--aws-assume-roles", &c.assumableRoles, aws.ParseAssumableRoles, o.AWSAssumeRoles),
		parseFlag("--azure-workload-identities", &c.workloadIdentities, azure.ParseWorkloadIdentities, o.AzureWorkloadIdentities),
		parseFlag("--container-engine-sockets", &c.engineSockets, docker.ParseSockets, o.ContainerEngineSockets),
	)
	return c, err
}

func (o Options) parseApps() (appConfig, error) {
	c := appConfig{pods: lrp.PodOptions{PullPolicy: corev1.PullAlways, StopDelay: o.InstanceStopDelay}, isolateSpaces: o.IsolateSpaces}
	err := parseFlag("--image-registries", &c.registries, imagemetadata.ParsePolicy, o.ImageRegistries)
	if o.TrustNodeImages {
		// An image that was loaded into nodes has a name but no digest, and may not exist in a registry.
		c.pods.PullPolicy, c.registries = corev1.PullIfNotPresent, imagemetadata.Policy{}
	}
	var badRoute, badKpack error
	c.publisher, badRoute = route.ParsePublisher(o.RouteGateway, o.RouteIngressClass)
	c.kpack, badKpack = kpack.ParseSettings(o.Kpack.Repository, o.Kpack.Builder, o.Kpack.ServiceAccount, o.Kpack.PullSecret)
	return c, errors.Join(err, badRoute, badKpack)
}

// parseFlag parses the values of a flag, and names the flag in the error.
func parseFlag[V any](flag string, into *V, parse func([]string) (V, error), values []string) error {
	parsed, err := parse(values)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	*into = parsed
	return nil
}
