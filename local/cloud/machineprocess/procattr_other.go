// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package machineprocess

import "syscall"

// groupAttributes puts the child into a separate process group. Only Linux can kill the child when the cloud ends.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
