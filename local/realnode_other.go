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
