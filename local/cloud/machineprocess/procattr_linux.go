// SPDX-License-Identifier: Apache-2.0

package machineprocess

import "syscall"

// groupAttributes puts the child into a separate process group, and makes the kernel kill it when the cloud ends.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
