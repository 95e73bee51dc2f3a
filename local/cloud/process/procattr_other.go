// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// groupAttributes gives the child a separate process group. Only Linux can tie its life to the cloud's.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
