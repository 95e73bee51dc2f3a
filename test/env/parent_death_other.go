// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package env

import "syscall"

// dieWithParent does nothing, because only Linux can kill a process with its parent. A test that ends normally stops
// the process anyway.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
