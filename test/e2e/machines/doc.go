// SPDX-License-Identifier: Apache-2.0

// Package machines hibernates a cluster whose nodes are virtual machines of a real libvirt: QEMU without
// acceleration, Debian's kernel, containerd and the kubelet. It needs root, a Debian machine and minutes, so only
// make e2e-machines runs it.
//
// Reading order: hibernation_test.go (the story) → hypervisor_test.go (libvirtd in its own namespaces) →
// guest_test.go (the disk of a node) → witness_test.go (records when each order arrives).
package machines
