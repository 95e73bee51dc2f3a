// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/torpor-dev/torpor/local/kubeclient"
)

// The commands of the components cannot run in one process, because each command installs a signal handler. The
// packages that the commands use can run in one process, and have the same flags.

func parseFlags(name string, sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, f := range sets.FlagSets {
		all.AddFlagSet(f)
	}
	if err := all.Parse(args); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	return nil
}

// allowOlderVersions lets the API server emulate every version since the first that can be emulated. By default it
// emulates only the three previous minor versions. Tests also need the oldest version that Torpor supports.
func allowOlderVersions() error {
	kube, registry := basecompatibility.DefaultKubeComponent, compatibility.DefaultComponentGlobalsRegistry
	oldest, own := version.MajorMinor(1, 31), registry.EffectiveVersionFor(kube).BinaryVersion()
	registry.Reset()
	effective := basecompatibility.NewEffectiveVersion(own, false, oldest, oldest)
	if err := registry.Register(kube, effective, utilfeature.DefaultMutableFeatureGate); err != nil {
		return fmt.Errorf("allow older versions of Kubernetes: %w", err)
	}
	return nil
}

func runAPIServer(ctx context.Context, args []string) error {
	if err := allowOlderVersions(); err != nil {
		return err
	}
	o := apiserveroptions.NewServerRunOptions()
	if err := parseFlags("kube-apiserver", o.Flags(), args); err != nil {
		return err
	}
	// This applies the feature gates in the flags, as the command of kube-apiserver does before it runs the server.
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete kube-apiserver options: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return fmt.Errorf("validate kube-apiserver options: %w", utilerrors.NewAggregate(errs))
	}
	return apiserver.Run(ctx, completed)
}

func runControllerManager(ctx context.Context, args []string) error {
	o, err := controlleroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("create kube-controller-manager options: %w", err)
	}
	known, disabled, aliases := controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases()
	sets := o.Flags(known, disabled, aliases)
	o.ParsedFlags = &sets
	if err := parseFlags("kube-controller-manager", sets, args); err != nil {
		return err
	}
	c, err := o.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("configure kube-controller-manager: %w", err)
	}
	return controllers.Run(ctx, c.Complete())
}

func runScheduler(ctx context.Context, args []string) error {
	o := scheduleroptions.NewOptions()
	if err := parseFlags("kube-scheduler", *o.Flags, args); err != nil {
		return err
	}
	c, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("configure kube-scheduler: %w", err)
	}
	return scheduler.Run(ctx, c, s)
}

func (c Config) apiServerFlags(p servingPorts, etcd string) []string {
	pki := func(name string) string { return c.path("pki", name) }
	reconciler := "lease"
	if net.ParseIP(c.Address).IsLoopback() {
		reconciler = "none" // A loopback address is not a valid endpoint of the Service "kubernetes", so it gets no endpoints.
	}
	flags := []string{
		"--etcd-servers=" + etcd, "--bind-address=" + c.Address, "--advertise-address=" + c.Address,
		"--endpoint-reconciler-type=" + reconciler,
		"--secure-port=" + strconv.Itoa(p.API),
		"--client-ca-file=" + pki("ca.crt"), "--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--service-account-key-file=" + pki("sa.key"), "--service-account-signing-key-file=" + pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--enable-bootstrap-token-auth",
		"--kubelet-client-certificate=" + pki("kubelet-client.crt"), "--kubelet-client-key=" + pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + pki("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
	}
	if c.EmulatedVersion != "" {
		flags = append(flags, "--emulated-version="+c.EmulatedVersion)
	}
	return flags
}

func (c Config) controllerManagerFlags() []string {
	kubeconfig := c.path("kcm.kubeconfig")
	duration := c.SigningDuration
	if duration == 0 {
		duration = 365 * 24 * time.Hour
	}
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0", "--leader-elect=false",
		"--use-service-account-credentials", "--service-account-private-key-file=" + c.path("pki", "sa.key"),
		"--root-ca-file=" + c.path("pki", "ca.crt"),
		"--cluster-signing-cert-file=" + c.path("pki", "ca.crt"), "--cluster-signing-key-file=" + c.path("pki", "ca.key"),
		"--cluster-signing-duration=" + duration.String(),
		"--controllers=*,bootstrapsigner,tokencleaner",
		// The controller manager creates this folder. The default is outside the folder of the control plane.
		"--flex-volume-plugin-dir=" + c.path("volume-plugins"),
		// The default of 20 requests a second makes the start take six seconds.
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		"--node-monitor-period=2s", "--node-monitor-grace-period=12s",
	}
}

func (c Config) schedulerFlags() []string {
	kubeconfig := c.path("scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0", "--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000",
	}
}

// startEtcd starts etcd and returns when it serves. Data is not synced to the disk: it survives a kill of the
// process, but perhaps not a power cut.
func startEtcd(ctx context.Context, c Config, p servingPorts) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "http", Host: net.JoinHostPort(etcdAddress, strconv.Itoa(p.EtcdClient))}
	peer := url.URL{Scheme: "http", Host: net.JoinHostPort(etcdAddress, strconv.Itoa(p.EtcdPeer))}
	cfg := embed.NewConfig()
	cfg.Dir = c.path("etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = "default=" + peer.String()
	// Syncs would take most of the time of the start, and data survives a kill of the process even without them.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "error"
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, client.String(), nil
	case err := <-e.Err():
		return nil, "", fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		e.Close()
		return nil, "", fmt.Errorf("start etcd: %w", context.Cause(ctx))
	}
}

const (
	approveInterval = time.Second
	// A real approver is a Pod, so it does not run while all nodes are down. A node counts as down if its lease is
	// at least this old.
	leaseAlive = 10 * time.Second
)

// approveServing approves serving certificates of existing nodes while any node is alive. It never approves client
// certificates. The controller manager approves their renewal. If they have expired during a hibernation, an
// administrator or Torpor has to approve new certificates.
func approveServing(ctx context.Context, client kubernetes.Interface) error {
	return wait.PollUntilContextCancel(ctx, approveInterval, true, func(ctx context.Context) (bool, error) {
		_ = approvePending(ctx, client) // The next round tries again after an error.
		return false, nil
	})
}

func approvePending(ctx context.Context, client kubernetes.Interface) error {
	if alive, err := isAnyNodeAlive(ctx, client); err != nil || !alive {
		return err
	}
	return kubeclient.ApproveRequests(ctx, client, "LocalServingApprover", "approved by the cluster's own approver",
		func(csr certificatesv1.CertificateSigningRequestSpec) (bool, error) {
			name, isNode := strings.CutPrefix(csr.Username, "system:node:")
			if csr.SignerName != certificatesv1.KubeletServingSignerName || !isNode {
				return false, nil
			}
			if _, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return false, fmt.Errorf("get node: %w", err)
			}
			return true, nil
		})
}

func isAnyNodeAlive(ctx context.Context, client kubernetes.Interface) (bool, error) {
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range leases.Items {
		if l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < leaseAlive {
			return true, nil
		}
	}
	return false, nil
}
