// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

const (
	// callTimeout bounds each call unless --request-timeout does.
	callTimeout = 30 * time.Second
	// fieldManager is the field manager of what is written here; the controller shows it as who asked.
	fieldManager = "kubectl-moco"
)

// kubeClient is a client of the API server with the namespace that the command is about.
type kubeClient struct {
	client.Client
	config    *rest.Config
	namespace string
}

// newConnector adds kubectl's flags and returns a function that connects as they say.
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

// openCluster connects and reads a MySQLCluster.
func (a *commands) openCluster(ctx context.Context, name string) (*kubeClient, *mocov1beta2.MySQLCluster, error) {
	kube, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := kube.getCluster(ctx, name)
	return kube, c, err
}

func (kube *kubeClient) getCluster(ctx context.Context, name string) (*mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLCluster
	err := kube.Get(ctx, client.ObjectKey{Namespace: kube.namespace, Name: name}, &found)
	if k8serrors.IsNotFound(err) && !isKindNotServed(err) {
		return nil, clusterNotFoundError(kube.namespace + "/" + name)
	}
	if err != nil {
		return nil, explainAPIError(fmt.Sprintf("read MySQLCluster %q", kube.namespace+"/"+name), err)
	}
	return &found, nil
}

// listClusters lists the MySQLClusters of the namespace.
func (kube *kubeClient) listClusters(ctx context.Context, with ...client.ListOption) ([]mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLClusterList
	if err := kube.List(ctx, &found, append(with, client.InNamespace(kube.namespace))...); err != nil {
		return nil, explainAPIError(fmt.Sprintf("list the MySQLClusters of namespace %q", kube.namespace), err)
	}
	return found.Items, nil
}

// explainAPIError adds what to do when the API server does not know the kind.
func explainAPIError(what string, err error) error {
	if isKindNotServed(err) {
		return fmt.Errorf("%s: expected the API server to serve %s, found that it does not; install the CRD", what, mocov1beta2.GroupVersion())
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isKindNotServed distinguishes a kind that is not there from an object that is not there.
func isKindNotServed(err error) bool {
	return k8serrors.IsNotFound(err) && k8serrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// describeCluster names a cluster for people.
func describeCluster(c *mocov1beta2.MySQLCluster) string {
	return fmt.Sprintf("MySQLCluster %q", c.Namespace+"/"+c.Name)
}
