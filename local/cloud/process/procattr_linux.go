// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// groupAttributes gives the child a separate process group, and makes the kernel kill it when the cloud dies.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
