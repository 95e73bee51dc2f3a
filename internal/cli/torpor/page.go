// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
)

const (
	// defaultNamespace and defaultDeployment are the defaults of the chart, for users who may not read the manager's
	// Lease.
	defaultNamespace, defaultDeployment = "torpor-system", "torpor-manager"
	pageAddressFlag                     = "--page-address"
	// reconnectTime is the delay before the command reconnects to a Pod.
	reconnectTime = time.Second
)

// pageCommand serves the page of the manager on the local machine, with the credentials of the user.
type pageCommand struct {
	*commands
	port      int
	account   string
	noBrowser bool
}

func (a *commands) newPageCommand() *cobra.Command {
	p := &pageCommand{commands: a}
	cmd := &cobra.Command{
		Use:   "page [--port 8088] [--no-browser]",
		Short: "Open the page of the manager in the browser, logged in with your own credentials",
		Long: `Open the page of the manager in the browser, logged in with your own credentials.

The command forwards a port to a Pod of the manager, which needs permission to create pods/portforward in its namespace. It prints an address of this machine
with a secret, and serves the page there until it is interrupted. The browser does not receive the credentials of the kubeconfig, but only a cookie of
the command. If the kubeconfig has a client certificate instead of a token, --service-account logs in as a ServiceAccount, as kubectl create token does.`,
		Example: `  # Open the page
  kubectl torpor page

  # Only print the address, and log in as the ServiceAccount alice of the namespace of the manager
  kubectl torpor page --no-browser --service-account alice`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) },
	}
	cmd.Flags().IntVar(&p.port, "port", 8088, "port of this machine; 0 selects a free port")
	cmd.Flags().StringVar(&p.account, "service-account", "", "log in as a ServiceAccount, NAME in the namespace of the manager or NAMESPACE/NAME")
	cmd.Flags().BoolVar(&p.noBrowser, "no-browser", false, "print the address, and do not open it")
	return cmd
}

func (p *pageCommand) run(ctx context.Context) error {
	kube, err := p.connect()
	if err != nil {
		return err
	}
	at, err := p.findPage(ctx, kube)
	if err != nil {
		return err
	}
	login, err := p.newCredentials(ctx, kube, at.pod.Namespace)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)))
	if err != nil {
		return fmt.Errorf("listen on this machine: %w; choose another --port", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	proxy := newPageProxy(rand.Text(), login)
	web := &http.Server{Handler: proxy, ReadHeaderTimeout: callLimit, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { cancel(web.Serve(listener)) }()
	defer func() { _ = web.Close() }() // Close also ends all open requests.
	return p.keepForwarding(ctx, kube, at, proxy, proxy.link(listener.Addr()))
}

// keepForwarding forwards a port to the page, and reconnects whenever the connection ends. It returns nil if the user
// interrupts the command. It returns an error if the first connection fails, or if the page can no longer be served
// locally.
func (p *pageCommand) keepForwarding(ctx context.Context, kube *kubeClient, at pageAddress, proxy *pageProxy, link string) error {
	for {
		err := forwardPort(ctx, kube.config, at, func(target *url.URL) {
			if proxy.setTarget(target) {
				p.announce(ctx, at, link)
			}
		})
		proxy.clearTarget()
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), ctx.Err()):
			return nil // The user has interrupted the command.
		case ctx.Err() != nil:
			return fmt.Errorf("serve the page on this machine: %w", context.Cause(ctx))
		case !proxy.wasReady():
			return err
		}
		fmt.Fprintf(p.Err, "the connection to %s ended: %v; connecting again\n", at, err)
		flushOutputs(p.Err)
		at = p.awaitPage(ctx, kube, at)
	}
}

// awaitPage finds the page again after a delay. It returns the last address if it finds none.
func (p *pageCommand) awaitPage(ctx context.Context, kube *kubeClient, last pageAddress) pageAddress {
	pause := time.NewTimer(reconnectTime)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return last
	case <-pause.C:
	}
	if next, err := p.findPage(ctx, kube); err == nil {
		return next
	}
	return last
}

func (p *pageCommand) announce(ctx context.Context, at pageAddress, link string) {
	fmt.Fprintf(p.Out, "The page of %s is at %s\nPress Ctrl-C to end.\n", at, link)
	flushOutputs(p.Out)
	if !p.noBrowser {
		openBrowser(ctx, link)
	}
}

// pageAddress is a Pod of the manager, and the port of its page.
type pageAddress struct {
	pod  *corev1.Pod
	port string
}

func (a pageAddress) String() string { return fmt.Sprintf("Pod %s/%s", a.pod.Namespace, a.pod.Name) }

// findPage returns a ready Pod of the manager, and the port of its page.
func (p *pageCommand) findPage(ctx context.Context, kube *kubeClient) (at pageAddress, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	key := client.ObjectKey{Namespace: defaultNamespace, Name: defaultDeployment}
	if acting := leasereader.ReadActing(ctx, kube, p.clock.Now()); acting.Installation != "" {
		key.Namespace, key.Name = acting.Installation, cmp.Or(acting.FindManager(), key.Name)
	}
	manager := &appsv1.Deployment{}
	if err = kube.Get(ctx, key, manager); err != nil {
		return at, fmt.Errorf("find the manager: read the Deployment %s: %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(manager.Spec.Selector)
	if err != nil {
		return at, fmt.Errorf("find the manager: read the selector of the Deployment %s: %w", key, err)
	}
	var pods corev1.PodList
	if err = kube.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(pageSize)); err != nil {
		return at, fmt.Errorf("find the manager: list the Pods of the Deployment %s: %w", key, err)
	}
	i := slices.IndexFunc(pods.Items, isPodReady)
	if i < 0 {
		return at, fmt.Errorf("expected a ready Pod of the Deployment %s, found none of %d; kubectl get pods -n %s shows why", key, len(pods.Items), key.Namespace)
	}
	at.pod = &pods.Items[i]
	at.port, err = readPagePort(at.pod)
	return at, err
}

func isPodReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// readPagePort reads the port of the page from the arguments of the Pod.
func readPagePort(pod *corev1.Pod) (port string, err error) {
	var address string
	for _, c := range pod.Spec.Containers {
		for i, arg := range c.Args {
			name, value, hasValue := strings.Cut(arg, "=")
			if !hasValue && i+1 < len(c.Args) {
				value = c.Args[i+1]
			}
			switch name {
			case pageAddressFlag:
				address = value
			case "--page-cert-dir":
				return "", exit.Error{Code: exit.Refused, Err: errors.New(
					"expected a page that listens only on the loopback address of its Pod, found a page with TLS; open the address of the Service torpor-page")}
			}
		}
	}
	if _, port, err = net.SplitHostPort(address); err != nil {
		return "", exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"expected %s in the arguments of Pod %s/%s, found that the page is off; set page.enabled=true in the chart", pageAddressFlag, pod.Namespace, pod.Name)}
	}
	return port, nil
}

// forwardPort forwards a free port of the local machine until the connection ends. It calls isReady with the address
// of this port.
func forwardPort(ctx context.Context, config *rest.Config, at pageAddress, isReady func(*url.URL)) error {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = 0 // The forwarded connection has no time limit.
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(
		address.JoinPath("api", "v1", "namespaces", at.pod.Namespace, "pods", at.pod.Name, "portforward"), config)
	if err != nil {
		return fmt.Errorf("forward a port: %w", err)
	}
	ready := make(chan struct{})
	forward, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{"0:" + at.port}, ready, io.Discard, io.Discard)
	if err != nil {
		return fmt.Errorf("forward a port: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forward.ForwardPorts() }()
	select {
	case err := <-ended:
		return describeForward(at, err)
	case <-ready:
	}
	ports, err := forward.GetPorts()
	if err != nil {
		return fmt.Errorf("forward a port: %w", err)
	}
	isReady(&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))})
	return describeForward(at, <-ended)
}

func describeForward(at pageAddress, err error) error {
	switch {
	case err == nil:
		return errors.New("the API server closed the connection")
	case k8serrors.IsForbidden(err):
		return fmt.Errorf("expected permission to create pods/portforward in namespace %s: %w", at.pod.Namespace, err)
	default:
		return fmt.Errorf("forward a port to %s: %w", at, err)
	}
}

// openBrowser opens an address in the browser. It ignores errors, because the address is also printed.
func openBrowser(ctx context.Context, address string) {
	command := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", address}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	}
	_ = exec.CommandContext(ctx, command[0], command[1:]...).Start()
}
