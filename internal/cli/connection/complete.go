// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// completionTimeout limits how long a shell waits for the names of namespaces.
	completionTimeout = 5 * time.Second
	// maxNamespaces limits the number of namespaces that a shell offers.
	maxNamespaces = 1000
)

// completeFlags registers completions for the flags whose values are contexts, clusters and users of the kubeconfig,
// or namespaces.
func completeFlags(root *cobra.Command, rules *clientcmd.ClientConfigLoadingRules, load Loader) {
	offer := func(flag string, list func(ctx context.Context) ([]string, error)) {
		// The call fails only if the flag does not exist or already has completions.
		cobra.CheckErr(root.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			names, err := list(cmd.Context())
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}))
	}
	offerEntries := func(flag string, names func(*clientcmdapi.Config) []string) {
		offer(flag, func(context.Context) ([]string, error) {
			file, err := rules.Load()
			if err != nil {
				return nil, fmt.Errorf("read the kubeconfig: %w", err)
			}
			return names(file), nil
		})
	}
	offerEntries(clientcmd.FlagContext, func(file *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(file.Contexts)) })
	offerEntries(clientcmd.FlagClusterName, func(file *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(file.Clusters)) })
	offerEntries(clientcmd.FlagAuthInfoName, func(file *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(file.AuthInfos)) })
	offer(clientcmd.FlagNamespace, func(ctx context.Context) ([]string, error) { return listNamespaces(ctx, load) })
}

func listNamespaces(ctx context.Context, load Loader) ([]string, error) {
	cfg, _, err := load()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil) // Discovery would cost a dozen requests.
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	kube, err := client.New(cfg, client.Options{Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := kube.List(ctx, list, client.Limit(maxNamespaces)); err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
