// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletcertificate "k8s.io/kubernetes/pkg/kubelet/certificate"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
)

const (
	awaitInterval = 200 * time.Millisecond
	requestLimit  = 5 * time.Second
	// The kubelet gives up without a certificate after this time, so that its wrapper can start it anew.
	exitAfter = 5 * time.Minute
	// What a kubelet may ask of the API server by default; client-go's own limit of 5 requests a second would let a node
	// start or end no more Pods than that.
	kubeletQPS, kubeletBurst = 50, 100
)

// keepClientCertificate does what the kubelet does at its start: go on with a client certificate that is still valid,
// else ask for one with the bootstrap token; then keep it renewed. It returns once there is one.
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
			// The bootstrap token only asks for the first certificate; renewals use the last one.
			if current != nil {
				return kubernetes.NewForConfig(clientConfig)
			}
			return kubernetes.NewForConfig(certConfig)
		})
	if err != nil {
		return nil, fmt.Errorf("make client certificate manager: %w", err)
	}
	rotating := rest.AnonymousClientConfig(clientConfig)
	if _, err := kubeletcertificate.UpdateTransport(log, ctx.Done(), rotating, manager, exitAfter); err != nil {
		return nil, fmt.Errorf("make rotating transport: %w", err)
	}
	manager.Start()
	context.AfterFunc(ctx, manager.Stop)
	if err := awaitCertificate(ctx, manager); err != nil {
		return nil, err
	}
	rotating.QPS, rotating.Burst = kubeletQPS, kubeletBurst
	return kubernetes.NewForConfig(rotating)
}

// keepServingCertificate keeps a serving certificate; Current is nil until the first is approved.
func (c Config) keepServingCertificate(ctx context.Context, client kubernetes.Interface) (certificate.Manager, error) {
	manager, err := kubeletcertificate.NewKubeletServerCertificateManager(client, &kubeletconfig.KubeletConfiguration{},
		types.NodeName(c.Name), func() []corev1.NodeAddress { return c.nodeAddresses() }, c.certificatesDir())
	if err != nil {
		return nil, fmt.Errorf("make serving certificate manager: %w", err)
	}
	manager.Start()
	context.AfterFunc(ctx, manager.Stop)
	return manager, nil
}

// awaitServer waits for the API server as a machine's boot does: asked too early, the certificate managers
// back off for longer than the server needs.
func awaitServer(ctx context.Context, cfg *rest.Config) error {
	probe := rest.AnonymousClientConfig(cfg)
	probe.Timeout = requestLimit
	client, err := kubernetes.NewForConfig(probe)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
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
