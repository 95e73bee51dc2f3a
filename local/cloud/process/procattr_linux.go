// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// groupAttributes gives the child its own process group, and lets the kernel kill it when the cloud dies.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
