// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
)

// findOpener is the instance whose server has opened a connection; every loopback connection comes from the same address, so
// that only the kernel's tables show which it is.
func (n *PodNetwork) findOpener(conn net.Conn) int {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || remote.IP.To4() == nil {
		return notAnInstance
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return notAnInstance
	}
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(remote.IP.To4()), remote.Port)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[1] == local {
			return n.findSocketOwner("socket:[" + fields[9] + "]")
		}
	}
	return notAnInstance
}

// findSocketOwner is the instance whose server holds a socket.
func (n *PodNetwork) findSocketOwner(socket string) int {
	for i, s := range n.servers {
		dir := fmt.Sprintf("/proc/%d/fd", s.PID())
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // The server has just ended.
		}
		for _, file := range files {
			if link, err := os.Readlink(dir + "/" + file.Name()); err == nil && link == socket {
				return i
			}
		}
	}
	return notAnInstance
}
