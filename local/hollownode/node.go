// SPDX-License-Identifier: Apache-2.0

// Package hollownode runs a hollow node: it runs no containers, but it uses the kubelet's own bootstrap and
// certificate managers, renews a real lease, sends real heartbeats, and reports its pods as running.
package hollownode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-base/version"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletcertificate "k8s.io/kubernetes/pkg/kubelet/certificate"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
	"k8s.io/utils/clock"
)

// Config is the configuration of a hollow node.
type Config struct {
	// Name of the Node object.
	Name string
	// Address is the loopback address that the node reports as its InternalIP and on which it serves.
	Address string
	// Dir contains the node's certificates and its kubeconfig, as does a kubelet's root folder.
	Dir string
	// Bootstrap is the kubeconfig with the token for the first certificate request.
	Bootstrap string
	// Heartbeat is the interval of the lease's renewal and of the node status.
	Heartbeat time.Duration
	// PodNetwork is the folder in which to create sockets for the ports of ready Pods, as in gateway.Config; without
	// it, Pods cannot be reached.
	PodNetwork string
	// Hold delays the node's start after the start of its machine, which simulates a slow boot.
	Hold time.Duration
	// HoldFile is the path of a file. The node's start is delayed while the file exists. If HoldFile is empty, the
	// start is not delayed.
	HoldFile string
}

// kubeletPort is the usual port of a kubelet.
const kubeletPort = 10250

func (c Config) validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("expected a node name, found none; set --name"))
	}
	if ip := net.ParseIP(c.Address); ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("expected a loopback address, found %q; set --address to one of 127.0.0.0/8", c.Address))
	}
	if c.Heartbeat <= 0 {
		errs = append(errs, fmt.Errorf("expected a heartbeat above zero, found %s; set --heartbeat", c.Heartbeat))
	}
	if _, err := os.Stat(c.Bootstrap); err != nil {
		errs = append(errs, fmt.Errorf("read bootstrap kubeconfig: %w; set --bootstrap-kubeconfig", err))
	}
	return errors.Join(errs...)
}

func (c Config) kubeconfigPath() string  { return filepath.Join(c.Dir, "kubeconfig") }
func (c Config) certificatesDir() string { return filepath.Join(c.Dir, "pki") }

func (c Config) nodeAddresses() []corev1.NodeAddress {
	return []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: c.Name},
		{Type: corev1.NodeInternalIP, Address: c.Address},
	}
}

const leaseRenewals = 4

// RunNode runs the node until ctx ends. Its Node object then remains, as after a power cut.
func RunNode(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.certificatesDir(), 0o700); err != nil {
		return fmt.Errorf("create node folder: %w", err)
	}
	if !waitFor(ctx, c.Hold) || !waitWhileFileExists(ctx, c.HoldFile) {
		return nil
	}
	client, err := c.keepClientCertificate(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	serving, err := c.keepServingCertificate(ctx, client)
	if err != nil {
		return err
	}
	pods := newPodRunner(client, c)
	port, err := serveKubelet(ctx, c.Address, serving, pods)
	if err != nil {
		return err
	}
	if err := c.registerNode(ctx, client, port); err != nil {
		return err
	}
	go c.renewLease(ctx, client)
	go pods.run(ctx)
	return c.reportPeriodically(ctx, client, port)
}

// waitFor waits for a duration; it returns false if ctx has ended.
func waitFor(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// waitWhileFileExists waits until the file does not exist; it returns false if ctx has ended.
func waitWhileFileExists(ctx context.Context, path string) bool {
	if path == "" {
		return true
	}
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(context.Context) (bool, error) {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist), nil
	})
	return err == nil
}

func (c Config) renewLease(ctx context.Context, client kubernetes.Interface) {
	// A kubelet renews its lease of 40 seconds every 10 seconds. The same ratio is used here.
	seconds := max(int32(c.Heartbeat.Seconds()*leaseRenewals), 1)
	controller := lease.NewController(clock.RealClock{}, client, c.Name, seconds, nil, c.Heartbeat, c.Name, corev1.NamespaceNodeLease, nil)
	controller.Run(klog.NewContext(ctx, klog.Background()))
}

var errNoServingCertificate = errors.New("expected a serving certificate, found none: the certificate request is not approved yet")

// serveKubelet serves /healthz and the logs of pods with the serving certificate, so that a client can check that the
// certificate was issued. It uses the kubelet's port, or a free port if the kubelet's port is in use.
func serveKubelet(ctx context.Context, address string, manager certificate.Manager, pods *podRunner) (int32, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(kubeletPort)))
	if err != nil {
		// Another node uses the port. Any port works, because clients read it from the Node object.
		l, err = listen.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	}
	if err != nil {
		return 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", pods.serveLogs)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: requestLimit, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if current := manager.Current(); current != nil {
				return current, nil
			}
			return nil, errNoServingCertificate
		},
	}}
	go func() { _ = server.ServeTLS(l, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return int32(l.Addr().(*net.TCPAddr).AddrPort().Port()), nil
}

// registerNode creates the Node, or uses the existing one from before a stop of the machine. It retries until it
// succeeds, because a renewal of the client certificate closes all connections, even connections in use.
func (c Config) registerNode(ctx context.Context, client kubernetes.Interface, port int32) error {
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(ctx context.Context) (bool, error) {
		if err := c.createAndReport(ctx, client, port); err != nil {
			klog.FromContext(ctx).Info("Node is not registered yet", "err", err)
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

func (c Config) createAndReport(ctx context.Context, client kubernetes.Interface, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{
		corev1.LabelHostname: c.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
	created, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err := client.CoreV1().Nodes().Create(created, node, metav1.CreateOptions{})
	if err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node: %w", err)
	}
	return c.reportNodeStatus(ctx, client, port)
}

// reportPeriodically reports the status periodically until ctx ends. A failed report is repeated by the next one.
func (c Config) reportPeriodically(ctx context.Context, client kubernetes.Interface, port int32) error {
	_ = wait.PollUntilContextCancel(ctx, c.Heartbeat, false, func(ctx context.Context) (bool, error) {
		_ = c.reportNodeStatus(ctx, client, port)
		return false, nil
	})
	return nil
}

func (c Config) reportNodeStatus(ctx context.Context, client kubernetes.Interface, port int32) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.fillNodeStatus(&node.Status, port)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("report node status: %w", err)
	}
	return nil
}

func (c Config) fillNodeStatus(s *corev1.NodeStatus, port int32) {
	// This capacity is more than any test needs, because nothing really runs.
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("250"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	s.Capacity, s.Allocatable = capacity, capacity
	s.Addresses = c.nodeAddresses()
	s.DaemonEndpoints.KubeletEndpoint.Port = port
	s.NodeInfo.KubeletVersion = version.Get().GitVersion
	s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	setCondition(s, corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory")
	setCondition(s, corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure")
	setCondition(s, corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID")
	setCondition(s, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")
}

func setCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	now := metav1.Now()
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.LastTransitionTime = now
			}
			c.Status, c.Reason, c.LastHeartbeatTime = status, reason, now
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: "hollow node", LastHeartbeatTime: now, LastTransitionTime: now,
	})
}

const (
	awaitInterval = 200 * time.Millisecond
	requestLimit  = 5 * time.Second
	// Without a certificate, the kubelet exits after this time, so that its wrapper can restart it.
	exitAfter = 5 * time.Minute
	// A kubelet's default limits for requests to the API server. With client-go's own limit, a node could start or
	// end at most 5 Pods a second.
	kubeletQPS, kubeletBurst = 50, 100
)

// keepClientCertificate does the same as the kubelet at its start: it uses a client certificate that is still valid,
// or requests one with the bootstrap token, and then renews it periodically. It returns once a certificate is
// present.
func (c Config) keepClientCertificate(ctx context.Context) (kubernetes.Interface, error) {
	log := klog.FromContext(ctx)
	certConfig, clientConfig, err := bootstrap.LoadClientConfig(log, c.kubeconfigPath(), c.Bootstrap, c.certificatesDir())
	if err != nil {
		return nil, fmt.Errorf("load client config: %w", err)
	}
	if err := awaitServer(ctx, certConfig); err != nil {
		return nil, err
	}
	manager, err := kubeletcertificate.NewKubeletClientCertificateManager(c.certificatesDir(), types.NodeName(c.Name),
		clientConfig.CertData, clientConfig.KeyData, clientConfig.CertFile, clientConfig.KeyFile,
		func(current *tls.Certificate) (kubernetes.Interface, error) {
			// The bootstrap token is used only to request the first certificate; renewals use the last certificate.
			if current != nil {
				return kubernetes.NewForConfig(clientConfig)
			}
			return kubernetes.NewForConfig(certConfig)
		})
	if err != nil {
		return nil, fmt.Errorf("create client certificate manager: %w", err)
	}
	rotating := rest.AnonymousClientConfig(clientConfig)
	if _, err := kubeletcertificate.UpdateTransport(log, ctx.Done(), rotating, manager, exitAfter); err != nil {
		return nil, fmt.Errorf("create rotating transport: %w", err)
	}
	manager.Start()
	context.AfterFunc(ctx, manager.Stop)
	if err := awaitCertificate(ctx, manager); err != nil {
		return nil, err
	}
	rotating.QPS, rotating.Burst = kubeletQPS, kubeletBurst
	return kubernetes.NewForConfig(rotating)
}

// keepServingCertificate requests a serving certificate and renews it. The method Current of the returned manager
// returns nil until the first request is approved.
func (c Config) keepServingCertificate(ctx context.Context, client kubernetes.Interface) (certificate.Manager, error) {
	manager, err := kubeletcertificate.NewKubeletServerCertificateManager(client, &kubeletconfig.KubeletConfiguration{},
		types.NodeName(c.Name), func() []corev1.NodeAddress { return c.nodeAddresses() }, c.certificatesDir())
	if err != nil {
		return nil, fmt.Errorf("create serving certificate manager: %w", err)
	}
	manager.Start()
	context.AfterFunc(ctx, manager.Stop)
	return manager, nil
}

// awaitServer waits for the API server, because after a failed request, the certificate managers back off for longer
// than the start of the server takes.
func awaitServer(ctx context.Context, cfg *rest.Config) error {
	probe := rest.AnonymousClientConfig(cfg)
	probe.Timeout = requestLimit
	client, err := kubernetes.NewForConfig(probe)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, awaitInterval, true, func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	return nil
}

func awaitCertificate(ctx context.Context, manager certificate.Manager) error {
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(context.Context) (bool, error) {
		current := manager.Current()
		return current != nil && current.Leaf.NotAfter.After(time.Now()), nil
	})
	if err != nil {
		return fmt.Errorf("wait for a client certificate: %w", err)
	}
	return nil
}
