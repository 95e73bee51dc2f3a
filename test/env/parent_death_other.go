// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package env

import "syscall"

// dieWithParent does nothing: only Linux can tie a process to its parent. A test that ends normally stops it anyway.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
