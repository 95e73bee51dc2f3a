// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// nodeComponent is the kubelet or kube-proxy, the parts of a real node.
func nodeComponent(ctx context.Context, name string) *cobra.Command {
	if name == "kubelet" {
		return kubelet.NewKubeletCommand(ctx)
	}
	return kubeproxy.NewProxyCommand()
}
