// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	// callTimeout bounds each call unless --request-timeout does.
	callTimeout = 30 * time.Second
	// fieldManager is the name under which the API server notes who wrote; the controller shows it as who asked.
	fieldManager = "kubectl-moco"
)

// kubeClient is the API server with the namespace that the command is about.
type kubeClient struct {
	client.Client
	config    *rest.Config
	namespace string
}

// newConnector adds kubectl's flags and returns what connects as they say.
func newConnector(flags *pflag.FlagSet, warnings io.Writer) func() (*kubeClient, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig; empty uses KUBECONFIG, then ~/.kube/config")
	var overrides clientcmd.ConfigOverrides
	clientcmd.BindOverrideFlags(&overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	return func() (*kubeClient, error) {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
		cfg, err := loader.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w; set --kubeconfig or KUBECONFIG", err)
		}
		namespace, _, err := loader.Namespace()
		if err != nil {
			return nil, fmt.Errorf("find the namespace: %w; set --namespace", err)
		}
		cfg.UserAgent = fieldManager
		cfg.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
		// A person's tool waits for nothing but the API server.
		cfg.QPS = -1
		if cfg.Timeout == 0 {
			cfg.Timeout = callTimeout
		}
		return newKubeClient(cfg, namespace)
	}
}

func newKubeClient(cfg *rest.Config, namespace string) (*kubeClient, error) {
	known := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	// These kinds need no discovery, which would cost a dozen calls.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(mocov1beta2.MySQLClusterKind(), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	c, err := client.New(cfg, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &kubeClient{Client: client.WithFieldOwner(c, fieldManager), config: cfg, namespace: namespace}, nil
}

// clusterNotFoundError is the namespace and name of a MySQLCluster that does not exist.
type clusterNotFoundError string

func (e clusterNotFoundError) Error() string {
	return fmt.Sprintf("expected MySQLCluster %q, found none; kubectl moco status lists those of a namespace", string(e))
}

// getCluster reads a MySQLCluster.
func (h *kubeClient) getCluster(ctx context.Context, name string) (*mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLCluster
	err := h.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, &found)
	if k8serrors.IsNotFound(err) && !isKindNotServed(err) {
		return nil, clusterNotFoundError(h.namespace + "/" + name)
	}
	if err != nil {
		return nil, explainAPIError(fmt.Sprintf("read MySQLCluster %q", h.namespace+"/"+name), err)
	}
	return &found, nil
}

// listClusters lists the MySQLClusters of the namespace.
func (h *kubeClient) listClusters(ctx context.Context, with ...client.ListOption) ([]mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLClusterList
	if err := h.List(ctx, &found, append(with, client.InNamespace(h.namespace))...); err != nil {
		return nil, explainAPIError(fmt.Sprintf("list the MySQLClusters of namespace %q", h.namespace), err)
	}
	return found.Items, nil
}

// explainAPIError says more than the API server does when it does not know the kind.
func explainAPIError(what string, err error) error {
	if isKindNotServed(err) {
		return fmt.Errorf("%s: expected the API server to serve %s, found that it does not; install the CRD", what, mocov1beta2.GroupVersion())
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isKindNotServed tells a kind that is not there from an object that is not there.
func isKindNotServed(err error) bool {
	return k8serrors.IsNotFound(err) && k8serrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// describeCluster is how people are told which cluster is meant.
func describeCluster(c *mocov1beta2.MySQLCluster) string {
	return fmt.Sprintf("MySQLCluster %q", c.Namespace+"/"+c.Name)
}

// clusterSelection is which clusters are meant: those with the names, or those with the labels.
type clusterSelection struct {
	selector string
}

func (p *clusterSelection) addSelectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.selector, "selector", "l", "", "labels of the MySQLClusters, such as team=a, instead of names")
}

// clusterNames are the names of the clusters that are meant.
func (p *clusterSelection) clusterNames(ctx context.Context, h *kubeClient, cmd *cobra.Command, args []string) ([]string, error) {
	if !cmd.Flags().Changed("selector") {
		return slices.Compact(slices.Sorted(slices.Values(args))), nil
	}
	selector, err := p.parseSelector()
	if err != nil {
		return nil, err
	}
	found, err := h.listClusters(ctx, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected MySQLClusters with the labels %q in namespace %q, found none", p.selector, h.namespace)
	}
	var names []string
	for _, c := range found {
		names = append(names, c.Name)
	}
	return names, nil
}

// parseSelector refuses an empty selector, which would mean every cluster where somebody forgot something.
func (p *clusterSelection) parseSelector() (labels.Selector, error) {
	selector, err := labels.Parse(p.selector)
	if err != nil {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found %q: %w", p.selector, err)
	}
	if selector.Empty() {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found none")
	}
	return selector, nil
}

// validateArgs demands names or a selector.
func (p *clusterSelection) validateArgs(cmd *cobra.Command, validateArgs []string) error {
	bySelector := cmd.Flags().Changed("selector")
	switch {
	case bySelector && len(validateArgs) > 0:
		return fmt.Errorf("expected names or --selector, found both")
	case !bySelector && len(validateArgs) == 0:
		return fmt.Errorf("expected the name of a MySQLCluster or --selector, found neither")
	default:
		return nil
	}
}

// completeClusterNames lists the clusters for the shell; only limits how many names a command takes, 0 for any.
func (a *commands) completeClusterNames(limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		h, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := h.listClusters(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, c := range found {
			if !slices.Contains(args, c.Name) {
				names = append(names, c.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
