// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command nodecomponents runs the kubelet or kube-proxy, depending on the name with which it is started. It is a
// separate program, because only real nodes need it, and the other demos need not compile it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-proxy":
		os.Exit(cli.Run(kubeproxy.NewProxyCommand()))
	default:
		fmt.Fprintf(os.Stderr, "error: expected the name kubelet or kube-proxy, found %s; start it through a link with that name\n", name)
		os.Exit(1)
	}
}
