// SPDX-License-Identifier: Apache-2.0

// Package connection connects kubectl plugins to the API server, with the kubeconfig and the flags of kubectl.
package connection

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/internal/buildinfo"
)

// callTimeout limits each request unless --request-timeout sets a limit.
const callTimeout = 30 * time.Second

// Loader returns the configuration of the client and the namespace of the command.
type Loader func() (*rest.Config, string, error)

// AddFlags adds kubectl's connection flags to the commands of a program, lets a shell complete them, and returns a
// Loader that applies them. Each warning of the API server is printed once.
func AddFlags(root *cobra.Command, program string, warnings io.Writer) Loader {
	flags := root.PersistentFlags()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig; empty uses KUBECONFIG, then ~/.kube/config")
	var overrides clientcmd.ConfigOverrides
	clientcmd.BindOverrideFlags(&overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	load := func() (*rest.Config, string, error) {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
		cfg, err := loader.ClientConfig()
		if err != nil {
			return nil, "", fmt.Errorf("find the API server: %w; set --kubeconfig or KUBECONFIG", err)
		}
		namespace, _, err := loader.Namespace()
		if err != nil {
			return nil, "", fmt.Errorf("find the namespace: %w; set --namespace", err)
		}
		cfg.UserAgent = buildinfo.UserAgent(program)
		cfg.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
		// No client-side rate limit: an interactive command should wait only for the API server.
		cfg.QPS = -1
		if cfg.Timeout == 0 {
			cfg.Timeout = callTimeout
		}
		return cfg, namespace, nil
	}
	completeFlags(root, rules, load)
	return load
}

// IsKindNotServed reports whether an error means that the API server does not serve the kind, as opposed to a
// missing object.
func IsKindNotServed(err error) bool {
	return k8serrors.IsNotFound(err) && k8serrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
