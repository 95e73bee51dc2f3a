// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
)

var errLinux = errors.New("expected Linux, found another system: only Linux runs real nodes")

func realCommands() []*cobra.Command { return nil }

func connectBridge(context.Context, string) (func() error, error) {
	return func() error { return nil }, nil
}

func (realNode) runNode(context.Context, io.Writer) error { return errLinux }

// nodeComponent runs the kubelet or kube-proxy, which only run on Linux.
func nodeComponent(context.Context, string) *cobra.Command {
	return &cobra.Command{Use: "node", RunE: func(*cobra.Command, []string) error { return errLinux }}
}
