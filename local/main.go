// SPDX-License-Identifier: Apache-2.0

// Command local runs a real Kubernetes control plane, hollow nodes with real certificates and a simulated cloud on
// one machine. Under the name etcd, kube-apiserver or kubectl it acts as that program, so that the same file also
// works for envtest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		os.Exit(runCommandLine())
	}
}

func runCommandLine() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "local",
		Short:         "A real control plane, nodes and a simulated cloud on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(controlPlaneCommand(), nodeCommand(), gatewayCommand(), cloudCommand(), clusterCommand(), hibernationDemoCommand(), recordDemoCommand(), cfDemoCommand(), benchCommand(), fleetBenchCommand(), upCommand(), downCommand(), mysqlCommand(), novaCommand(), libvirtCommand(), guestCommand(), engineCommand(), bmcCommand())
	root.AddCommand(realCommands()...)
	return root
}
