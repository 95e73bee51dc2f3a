// SPDX-License-Identifier: Apache-2.0

package env

import "syscall"

// dieWithParent makes the kernel kill the process when the test's own process dies, even by kill -9.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
