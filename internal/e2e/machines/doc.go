// SPDX-License-Identifier: Apache-2.0

// Package machines lets a cluster hibernate whose nodes are virtual machines of a real libvirt: QEMU without acceleration, a kernel of Debian,
// containerd and the kubelet. It needs root, a Debian machine and minutes, so only make e2e-machines runs it.
//
// Reading order: hibernation_test.go (the story) → hypervisor_test.go (libvirtd in namespaces of its own) → guest_test.go (the disk of a
// node) → witness_test.go (who hears each order, and when).
package machines
